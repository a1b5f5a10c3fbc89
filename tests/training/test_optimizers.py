"""What weight decay falls on, which rates are set, Adam's equations worked by hand, and that every optimizer learns."""


from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from toy import CONFIG as WHOLE
from toy import CPU, Naming, batch_at, dying, left_in, model_of, run

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.config.schedules import Clock
from icrl.config.training_schema import IDLE, OPTIMIZERS, OptimizerConfig
from icrl.runs.distributed import Ranks
from icrl.training.mtadam import MTAdam
from icrl.training.optimizers import make_optimizer, set_rates
from icrl.training.updates import Updater

CONFIG = load_config().optimizer
PRESETS = {name: load_config([f"optimizer={name}"]).optimizer for name in OPTIMIZERS}


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
    optimizer = make_optimizer(model, config_of(name=name, weight_decay=0.0, learning_rate=0.1, epsilon=1e-8))
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
        model, config_of(name="adam", beta1=beta1, beta2=beta2, epsilon=eps, learning_rate=rate, weight_decay=0.0)
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


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_option_that_is_read_reaches_the_optimizer(name: str) -> None:
    """And what is not is idle in the preset."""
    preset = PRESETS[name]
    assert {option for option, idle in IDLE.items() if vars(preset)[option] != idle} <= set(OPTIMIZERS[name])
    learned = {}
    for option in ("", *OPTIMIZERS[name]):
        other = {option: 0.5} if option else {}
        torch.manual_seed(0)
        model = model_of(0, dropout=0.0)
        updater = updater_of(model, replace(preset, learning_rate=0.1, **other))
        for update in range(8):  # the first five of RAdam do not read beta2
            updater.update(batch_at(update), Clock(0, 0, 0, 0))
        learned[option] = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    for option in OPTIMIZERS[name]:
        assert not torch.equal(learned[option], learned[""]), option


class Modest(Naming):
    """The same, with a second term: that logits are small."""

    weights = {"naming": 1.0, "size": 0.01}

    def __call__(self, model: nn.Module, batch: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        terms, metrics = super().__call__(model, batch)
        return terms | {"size": self.logits(model, batch).square().mean()}, metrics


def updater_of(model: nn.Module, config: OptimizerConfig) -> Updater:
    return Updater(model, Modest(), replace(WHOLE, optimizer=config), CPU, Ranks())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_learns(name: str) -> None:
    """As its preset is, but for a constant learning rate, it gets to know the nine observations."""
    model = model_of(0, dropout=0.0)
    peak = PRESETS[name].learning_rate["initial"]
    updater = updater_of(model, replace(PRESETS[name], learning_rate=3 * peak))
    found = [updater.update(batch_at(update), Clock(0, 0, 0, 0)) for update in range(200)]
    first, last = (sum(metrics["naming"].item() for metrics in some) / 10 for some in (found[:10], found[-10:]))
    assert last < first / 4
    assert found[-1]["accuracy"] == 1


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_interrupted_run_ends_with_the_same_bits(name: str, tmp_path: Path) -> None:
    config = replace(WHOLE, optimizer=replace(PRESETS[name], learning_rate=0.05))
    run(tmp_path / "whole", config)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "dead", config, batches=dying(7))
    run(tmp_path / "dead", config, model_of(99))
    assert left_in(tmp_path / "dead") == left_in(tmp_path / "whole")


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_does_not_learn_is_in_no_optimizer(name: str) -> None:
    model = Model()
    model.layer.weight.requires_grad_(False)
    model.table.weight.requires_grad_(False)
    optimizer = make_optimizer(model, PRESETS[name])
    taken = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    assert taken == {id(parameter) for parameter in (*model.norm.parameters(), model.layer.bias, model.loose)}


def test_the_matrices_of_linear_layers_are_the_group_that_decays() -> None:
    """And so those that LAMB scales its steps for."""
    model = Model()
    for name in OPTIMIZERS:
        decaying, other = make_optimizer(model, PRESETS[name]).param_groups
        assert decaying["decays"] and not other["decays"]
        assert [id(parameter) for parameter in decaying["params"]] == [id(model.layer.weight)]


def test_momentum_reaches_the_update_rule() -> None:
    """Two steps on gradients 1 and -2: -0.1, then -0.1 (0.5 - 2)."""
    model = Model()
    optimizer = make_optimizer(model, replace(PRESETS["sgd"], momentum=0.5, learning_rate=0.1))
    for gradient in (1.0, -2.0):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, gradient)
        optimizer.step()
    assert torch.allclose(model.loose, torch.full_like(model.loose, 1 - 0.1 + 0.15))


def test_beta3_reaches_mtadam() -> None:
    optimizer = make_optimizer(Model(), replace(PRESETS["mtadam"], beta3=0.25))
    assert isinstance(optimizer, MTAdam) and optimizer.param_groups[0]["betas"] == (0.9, 0.999, 0.25)
