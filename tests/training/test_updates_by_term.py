"""Updates that take the gradient of every term by itself: what MTAdam is given, in which order, and what is told."""


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
from icrl.training.mtadam import MTAdam
from icrl.training.updates import Updater

START = Clock(0, 0, 0, 0)
MTADAM = load_config(["optimizer=mtadam"]).optimizer
WEIGHTS = {"first": 2.0, "second": 0.5, "both": 1.0}


class Model(nn.Module):
    """Two heads on one trunk, and a parameter that nothing reaches."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk, self.idle = nn.Embedding(9, 4), nn.Parameter(torch.ones(2))
        self.heads = nn.ModuleList(nn.Linear(4, 1) for _ in range(2))

    def forward(self, obs: Tensor) -> list[Tensor]:
        hidden = self.trunk(obs)
        return [head(hidden)[..., 0] for head in self.heads]


class Three:
    """The terms are in another order than the weights."""

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


def updater_of(model: nn.Module, max_norm: float = 1e6, **changes: dict[str, Any]) -> Updater:
    options = replace(MTADAM, learning_rate=0.1, max_gradient_norm=max_norm, weight_decay=0.01)
    return Updater(model, Three(), replace(config_of(**changes), optimizer=options), CPU, Ranks())


def gradients_of(model: nn.Module, parameters: list[Tensor]) -> dict[str, list[Tensor | None]]:
    """Of every term by itself, by three separate backward passes."""
    found: dict[str, list[Tensor | None]] = {}
    for name in ("second", "first", "both"):
        terms, _ = Three()(model, batch_at(0))
        model.zero_grad()
        terms[name].backward()
        found[name] = [parameter.grad for parameter in parameters]
        model.zero_grad()
    return found


def norm_of(gradients: list[Tensor | None]) -> float:
    return sum(float(gradient.square().sum()) for gradient in gradients if gradient is not None) ** 0.5


@pytest.mark.parametrize("max_norm", [1e6, 0.5, 1e-3])
def test_an_update_is_a_step_on_the_clipped_gradient_of_each_term(max_norm: float) -> None:
    model, expected = Model(), Model()
    updater = updater_of(model, max_norm)
    metrics = updater.update(batch_at(0), START)

    groups = [{"params": [head.weight for head in expected.heads], "weight_decay": 0.01}]
    groups.append({"params": [expected.idle, expected.trunk.weight, *(head.bias for head in expected.heads)]})
    optimizer = MTAdam(groups, lr=0.1, betas=(0.9, 0.999, 0.9), eps=1e-8)
    found = gradients_of(expected, optimizer.parameters)
    clipped = []
    for gradients in found.values():
        scale = min(1.0, max_norm / norm_of(gradients))
        clipped.append([None if gradient is None else scale * gradient for gradient in gradients])
    optimizer.step(clipped, [0.5, 2.0, 1.0])
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, expected.get_parameter(name), rtol=1e-4, atol=1e-5)
    assert torch.equal(model.idle, torch.ones(2)) and model.idle.grad is None

    weights = [WEIGHTS[name] for name in found]
    total = [
        sum(w * g for w, g in zip(weights, of_parameter, strict=True) if g is not None)
        for of_parameter in zip(*found.values(), strict=True)
    ]
    assert metrics["gradient_norm"].item() == pytest.approx(norm_of([g for g in total if torch.is_tensor(g)]), rel=1e-4)
    shown = [sum(w * g for w, g in zip(weights, of, strict=True) if g is not None) for of in zip(*clipped, strict=True)]
    for parameter, gradient in zip(updater.optimizer.parameters, shown, strict=True):
        if parameter.grad is not None:
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


def test_clipping_is_of_each_term_by_itself() -> None:
    """A small term keeps its gradient beside a large one; how the optimizer balances them is not hidden in it."""
    model = Model()
    given: list[Any] = []
    updater = updater_of(model, 1.0)
    assert isinstance(updater.optimizer, MTAdam)
    updater.optimizer.step = lambda gradients, ranks: given.append((gradients, ranks))  # type: ignore[method-assign]
    updater.update(batch_at(0), START)
    ((gradients, ranks),) = given
    assert ranks == [0.5, 2.0, 1.0]
    before = [norm_of(of_term) for of_term in gradients_of(model, updater.optimizer.parameters).values()]
    assert before[0] > 1 > before[2]
    assert [norm_of(of_term) for of_term in gradients] == pytest.approx([min(norm, 1.0) for norm in before], rel=1e-4)


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_accumulation_equals_one_batch(parts: int) -> None:
    whole, dealt = Model(), Model()
    one, several = updater_of(whole, 0.5), updater_of(dealt, 0.5, trainer={"gradient_accumulation_steps": parts})
    for update in range(3):
        metrics, others = one.update(batch_at(update), START), several.update(batch_at(update), START)
        assert metrics.keys() == others.keys() == {"loss", "size", "gradient_norm", *WEIGHTS}
        for name, value in metrics.items():
            assert others[name] == pytest.approx(value.item(), rel=1e-3), name
        for mine, theirs in zip(whole.parameters(), dealt.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


def test_the_loss_is_the_weighted_sum_of_the_terms() -> None:
    metrics = updater_of(Model()).update(batch_at(0), START)
    assert metrics["loss"].item() == pytest.approx(sum(w * metrics[name].item() for name, w in WEIGHTS.items()))


def test_several_processes_are_refused() -> None:
    config = replace(config_of(), optimizer=MTADAM)
    with pytest.raises(ConfigError, match=r"optimizer\.name=mtadam .* 2 processes"):
        Updater(Model(), Three(), config, CPU, Ranks(0, 2))
