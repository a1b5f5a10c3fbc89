"""Learning rates against numbers worked by hand, and what weight decay falls on."""

import dataclasses

import pytest
import torch
from torch import nn

from src.config import load_config
from src.training.optimizers import learning_rate, make_optimizer
from src.training_schema import OptimizerConfig

CONFIG = load_config().optimizer


def config_of(**changes: float | str) -> OptimizerConfig:
    return dataclasses.replace(CONFIG, **changes)


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        (0, 0.25),  # warm-up: a quarter, a half, ...
        (1, 0.5),
        (3, 1.0),
        (4, 1.0),  # top of the cosine, which has 12 updates
        (7, 0.2 + 0.8 * (1 + 2**-0.5) / 2),  # an eighth of the circle
        (8, 0.2 + 0.8 * 0.75),  # cos 60 degrees
        (10, 0.6),  # half-way
        (12, 0.2 + 0.8 * 0.25),
        (16, 0.2),
        (99, 0.2),  # and there it stays
    ],
)
def test_schedule_by_hand(update: int, expected: float) -> None:
    config = config_of(learning_rate=1.0, final_learning_rate=0.2, warmup_updates=4, schedule_updates=16)
    assert learning_rate(config, update, 1000) == pytest.approx(expected)


def test_schedule_ends_with_the_run_unless_told_otherwise() -> None:
    config = config_of(learning_rate=1.0, final_learning_rate=0.0, warmup_updates=0, schedule_updates=0)
    assert learning_rate(config, 0, 8) == 1.0
    assert learning_rate(config, 4, 8) == pytest.approx(0.5)
    assert learning_rate(config, 8, 8) == pytest.approx(0.0)


def test_a_warmup_longer_than_the_schedule_ends_at_its_end() -> None:
    config = config_of(learning_rate=1.0, final_learning_rate=0.1, warmup_updates=10, schedule_updates=5)
    assert [learning_rate(config, update, 20) for update in (9, 10, 11)] == [1.0, 1.0, 0.1]


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
