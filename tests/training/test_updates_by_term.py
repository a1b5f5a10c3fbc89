"""Updates that take the gradient of every term by itself, for MTAdam."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from toy import CPU, batch_at, config_of

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.config.schedules import Clock
from icrl.contracts import Batch, ConfigError
from icrl.runs.distributed import Ranks
from icrl.training.optimizers import MTAdam
from icrl.training.updates import Updater

START = Clock(0, 0, 0, 0)
MTADAM = load_config(["optimizer=mtadam"]).optimizer
WEIGHTS = {"first": 2.0, "second": 0.5, "both": 1.0}
Gradients = list[Tensor | None]


class Model(nn.Module):
    """Two heads on one trunk, and a parameter that no term reaches."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk, self.idle = nn.Embedding(9, 4), nn.Parameter(torch.ones(2))
        self.heads = nn.ModuleList(nn.Linear(4, 1) for _ in range(2))

    def forward(self, obs: Tensor) -> list[Tensor]:
        hidden = self.trunk(obs)
        return [head(hidden)[..., 0] for head in self.heads]


class Three:
    """An objective whose terms are in another order than its weights."""

    weights = WEIGHTS

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        one, other = model(batch.obs)
        terms = {
            "second": 50 * (other - batch.action).square().mean(),
            "first": (one - batch.reward).square().mean(),
            "both": (one * other).square().mean(),
        }
        return terms, {"size": one.abs().mean().detach()}

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        return torch.stack(model(batch.obs), -1)


def by_term(model: nn.Module, max_norm: float = 1e6, **changes: dict[str, Any]) -> Updater:
    options = replace(MTADAM, learning_rate=0.1, max_gradient_norm=max_norm, weight_decay=0.01)
    return Updater(model, Three(), replace(config_of(**changes), optimizer=options), CPU, Ranks())


def gradients_of(model: nn.Module, parameters: list[Tensor]) -> list[Gradients]:
    """Gradients of every term, by three separate backward passes."""
    found: list[Gradients] = []
    for name in ("second", "first", "both"):
        model.zero_grad()
        Three()(model, batch_at(0))[0][name].backward()
        found.append([parameter.grad for parameter in parameters])
    model.zero_grad()
    return found


def norm_of(gradients: Gradients) -> float:
    return sum(float(gradient.square().sum()) for gradient in gradients if gradient is not None) ** 0.5


def weighted(gradients: list[Gradients]) -> Gradients:
    found = [zip((0.5, 2.0, 1.0), of_one, strict=True) for of_one in zip(*gradients, strict=True)]
    sums = [sum(rank * gradient for rank, gradient in pairs if gradient is not None) for pairs in found]
    return [total if torch.is_tensor(total) else None for total in sums]


@pytest.mark.parametrize("max_norm", [1e6, 0.5, 1e-3])
def test_an_update_is_a_step_on_the_clipped_gradient_of_each_term(max_norm: float) -> None:
    """A small term keeps its gradient beside a large one."""
    model, expected = Model(), Model()
    updater = by_term(model, max_norm)
    metrics = updater.update(batch_at(0), START)
    groups = [{"params": [head.weight for head in expected.heads], "weight_decay": 0.01}]
    groups.append({"params": [expected.idle, expected.trunk.weight, *(head.bias for head in expected.heads)]})
    optimizer = MTAdam(groups, lr=0.1, betas=(0.9, 0.999, 0.9), eps=1e-8)
    found = gradients_of(expected, optimizer.parameters)
    scales = [min(1.0, max_norm / norm_of(gradients)) for gradients in found]
    clipped: list[Gradients] = [
        [None if gradient is None else scale * gradient for gradient in gradients]
        for scale, gradients in zip(scales, found, strict=True)
    ]
    optimizer.step(clipped, [0.5, 2.0, 1.0])
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, expected.get_parameter(name), rtol=1e-4, atol=1e-5)
    assert torch.equal(model.idle, torch.ones(2)) and model.idle.grad is None
    assert metrics["gradient_norm"].item() == pytest.approx(norm_of(weighted(found)), rel=1e-4)
    for parameter, gradient in zip(updater.optimizer.parameters, weighted(clipped), strict=True):
        if parameter.grad is not None:
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("parts", [2, 8])
def test_accumulation_by_term_equals_one_batch(parts: int) -> None:
    whole, dealt = Model(), Model()
    one, several = by_term(whole, 0.5), by_term(dealt, 0.5, trainer={"gradient_accumulation_steps": parts})
    for update in range(3):
        metrics, others = one.update(batch_at(update), START), several.update(batch_at(update), START)
        assert metrics.keys() == others.keys() == {"loss", "size", "gradient_norm", *WEIGHTS}
        weights = WEIGHTS.items()
        assert metrics["loss"].item() == pytest.approx(sum(w * metrics[name].item() for name, w in weights))
        for name, value in metrics.items():
            assert others[name] == pytest.approx(value.item(), rel=1e-3), name
        for mine, theirs in zip(whole.parameters(), dealt.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


def test_several_processes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"optimizer\.name=mtadam .* 2 processes"):
        Updater(Model(), Three(), replace(config_of(), optimizer=MTADAM), CPU, Ranks(0, 2))
