"""What weight decay falls on, which rates are set, and Adam's equations worked by hand."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from src.config import load_config
from src.schedules import Clock
from src.training.optimizers import make_optimizer, set_rates
from src.training_schema import OptimizerConfig

CONFIG = load_config().optimizer


def config_of(**changes: object) -> OptimizerConfig:
    return replace(CONFIG, **changes)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(3, 4)
        self.norm = nn.LayerNorm(4)
        self.layer = nn.Linear(4, 2)
        self.loose = nn.Parameter(torch.ones(2, 2))


def test_weight_decay_shrinks_matrices_of_linear_layers_alone() -> None:
    model = Model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = make_optimizer(model, config_of(name="adamw", weight_decay=0.5, learning_rate=0.1))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, value in model.state_dict().items():
        factor = 1 - 0.1 * 0.5 if name == "layer.weight" else 1.0
        assert torch.allclose(value, before[name] * factor), name


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_first_step_is_the_learning_rate_against_the_gradients_sign(name: str) -> None:
    """Adam's first step is lr * g / (|g| + eps), whatever the decays; every parameter is taken along."""
    model = Model()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    optimizer = make_optimizer(model, config_of(name=name, weight_decay=0.0, learning_rate=0.1, eps=1e-8))
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, -3.0)
    optimizer.step()
    for key, value in model.state_dict().items():
        assert torch.allclose(value, before[key] + 0.1, atol=1e-6), key


def test_decays_and_epsilon_reach_the_update_rule() -> None:
    """Two steps, on gradients 1 and -2, by Adam's equations."""
    model = Model()
    start = model.norm.bias[0].item()
    beta1, beta2, eps, rate = 0.7, 0.9, 0.1, 0.01
    optimizer = make_optimizer(
        model, config_of(name="adam", beta1=beta1, beta2=beta2, eps=eps, learning_rate=rate, weight_decay=0.0)
    )
    mean = square = 0.0
    value = start
    for step, gradient in ((1, 1.0), (2, -2.0)):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, gradient)
        optimizer.step()
        mean = beta1 * mean + (1 - beta1) * gradient
        square = beta2 * square + (1 - beta2) * gradient**2
        value -= rate * (mean / (1 - beta1**step)) / ((square / (1 - beta2**step)) ** 0.5 + eps)
        assert model.norm.bias[0].item() == pytest.approx(value, abs=1e-6)


def test_rates_are_those_of_the_clock() -> None:
    config = config_of(
        learning_rate={"kind": "linear", "progress": "percent", "points": [[0, 0.4], [1, 0]]},
        weight_decay={"kind": "linear", "progress": "updates", "points": [[0, 0], [10, 1.0]]},
    )
    optimizer = make_optimizer(Model(), config)
    for clock, rate, decay in ((Clock(0, 0, 0, 0), 0.4, 0.0), (Clock(0.25, 5, 0, 5), 0.3, 0.5)):
        set_rates(optimizer, config, clock)
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([rate, rate])
        assert [group["weight_decay"] for group in optimizer.param_groups] == pytest.approx([decay, 0.0])


def test_a_new_optimizer_has_the_rates_of_the_start() -> None:
    """They are in the table of parameters that a run records before its first update."""
    optimizer = make_optimizer(Model(), config_of(learning_rate=0.25, weight_decay=0.125))
    assert [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups] == [(0.25, 0.125), (0.25, 0.0)]
