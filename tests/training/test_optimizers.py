"""Optimizers by name: the reach of weight decay and of every option, rates, learning, and resuming."""

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
from icrl.runs.distributed import Ranks
from icrl.training.optimizers import OPTIMIZERS, OptimizerConfig, make_optimizer
from icrl.training.updates import Updater

PRESETS = {name: load_config([f"optimizer={name}"]).optimizer for name in OPTIMIZERS}
START = Clock(0, 0, 0, 0)
every_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(3, 4)
        self.norm = nn.LayerNorm(4)
        self.layer = nn.Linear(4, 2)
        self.loose = nn.Parameter(torch.ones(2, 2))


@every_optimizer
def test_matrices_of_linear_layers_decay_and_frozen_parameters_are_left_out(name: str) -> None:
    model = Model()
    model.table.weight.requires_grad_(False)
    decay = 0.125 if hasattr(PRESETS[name], "weight_decay") else 0.0
    config = replace(PRESETS[name], learning_rate=0.25, **({"weight_decay": decay} if decay else {}))
    decaying, other = make_optimizer(model, config).param_groups
    assert [id(parameter) for parameter in decaying["params"]] == [id(model.layer.weight)]
    others = (*model.norm.parameters(), model.layer.bias, model.loose)
    assert {id(parameter) for parameter in other["params"]} == {id(parameter) for parameter in others}
    assert (decaying["decays"], other["decays"]) == (True, False)
    rates = [(group["lr"], group["weight_decay"]) for group in (decaying, other)]
    assert rates == [(0.25, decay), (0.25, 0.0)]  # a run records these before its first update


def test_options_of_adam_and_sgd_reach_their_equations() -> None:
    """Two steps, on gradients 1 and -2."""
    beta1, beta2, eps, rate = 0.7, 0.9, 0.1, 0.01
    adam: dict[str, Any] = {"beta1": beta1, "beta2": beta2, "epsilon": eps, "learning_rate": rate}
    for name, options in (("adam", adam), ("sgd", {"momentum": 0.5, "learning_rate": 0.1})):
        model = Model()
        optimizer = make_optimizer(model, replace(PRESETS[name], **options))
        mean = square = value = 0.0
        for step, gradient in ((1, 1.0), (2, -2.0)):
            for parameter in model.parameters():
                parameter.grad = torch.full_like(parameter, gradient)
            optimizer.step()
            mean = beta1 * mean + (1 - beta1) * gradient
            square = beta2 * square + (1 - beta2) * gradient**2
            value -= rate * (mean / (1 - beta1**step)) / ((square / (1 - beta2**step)) ** 0.5 + eps)
        expected = value if name == "adam" else -0.1 + 0.15  # -0.1, then -0.1 (0.5 - 2)
        assert model.norm.bias[0].item() == pytest.approx(expected, abs=1e-6)


class Modest(Naming):
    """The same objective with a second term: that logits are small."""

    weights = {"naming": 1.0, "size": 0.01}

    def __call__(self, model: nn.Module, batch: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        terms, metrics = super().__call__(model, batch)
        return terms | {"size": self.logits(model, batch).square().mean()}, metrics


def updater_of(model: nn.Module, config: OptimizerConfig) -> Updater:
    return Updater(model, Modest(), replace(WHOLE, optimizer=config), CPU, Ranks())


@every_optimizer
def test_every_option_of_an_optimizer_reaches_it(name: str) -> None:
    preset = PRESETS[name]
    own = set(type(preset).model_fields) - set(OptimizerConfig.model_fields)
    learned = {}
    for option in ("", *own):
        model = model_of(0, dropout=0.0)
        updater = updater_of(model, replace(preset, learning_rate=0.1, **({option: 0.5} if option else {})))
        for update in range(8):  # the first five of RAdam do not read beta2
            updater.update(batch_at(update), START)
        learned[option] = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    for option in own:
        assert not torch.equal(learned[option], learned[""]), option


@every_optimizer
def test_every_optimizer_learns(name: str) -> None:
    """Its preset, with a constant learning rate, learns the nine observations."""
    model = model_of(0, dropout=0.0)
    updater = updater_of(model, replace(PRESETS[name], learning_rate=3 * PRESETS[name].learning_rate["initial"]))
    found = [updater.update(batch_at(update), START) for update in range(200)]
    first, last = (sum(metrics["naming"].item() for metrics in some) / 10 for some in (found[:10], found[-10:]))
    assert last < first / 4
    assert found[-1]["accuracy"] == 1


@every_optimizer
def test_an_interrupted_run_ends_with_the_same_bits(name: str, tmp_path: Path) -> None:
    config = replace(WHOLE, optimizer=replace(PRESETS[name], learning_rate=0.05))
    run(tmp_path / "whole", config)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "dead", config, batches=dying(7))
    run(tmp_path / "dead", config, model_of(99))
    assert left_in(tmp_path / "dead") == left_in(tmp_path / "whole")
