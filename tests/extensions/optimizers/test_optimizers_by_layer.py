"""LAMB and MTAdam against numbers worked by hand and loops over single numbers; updates by term."""

import math
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from toy import CPU, batch_at, config_of

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.config.schedules import Clock
from icrl.contracts import Batch, ConfigError
from icrl.extensions.optimizers.lamb import Lamb
from icrl.extensions.optimizers.mtadam import MTAdam
from icrl.runs.distributed import Ranks
from icrl.training.optimizers import make_optimizer
from icrl.training.updates import Updater

START = Clock(0, 0, 0, 0)
RATE, BETAS, EPS = 0.1, (0.7, 0.9, 0.6), 0.01
LAMB = {"lr": RATE, "betas": BETAS[:2], "eps": EPS}
MTADAM = LAMB | {"betas": BETAS}


def random(*shape: int, seed: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def flat(tensors: Any) -> Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


class Moments:
    """Adam's averages of one tensor, as lists of numbers."""

    def __init__(self, size: int) -> None:
        self.steps, self.mean, self.square = 0, [0.0] * size, [0.0] * size

    def add(self, gradient: list[float]) -> tuple[list[float], list[float]]:
        """Corrected mean and root of the corrected square."""
        beta1, beta2, _ = BETAS
        self.steps += 1
        self.mean = [beta1 * m + (1 - beta1) * g for m, g in zip(self.mean, gradient, strict=True)]
        self.square = [beta2 * v + (1 - beta2) * g * g for v, g in zip(self.square, gradient, strict=True)]
        corrected = [v / (1 - beta2**self.steps) for v in self.square]
        return [m / (1 - beta1**self.steps) for m in self.mean], [math.sqrt(v) for v in corrected]


def norm_of(numbers: list[float]) -> float:
    return math.sqrt(sum(x * x for x in numbers))


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([0.0, 0.3]), st.sampled_from([0.01, 1.0, 300.0]))
def test_steps_of_lamb_follow_the_equation(seed: int, decays: bool, weight_decay: float, scale: float) -> None:
    """With large and small gradients: none is clipped."""
    parameter = nn.Parameter(random(2, 3, seed=seed))
    optimizer = Lamb([{"params": [parameter], "decays": decays, "weight_decay": weight_decay}], **LAMB)
    weights, moments = parameter.flatten().tolist(), Moments(6)
    for step in range(4):
        parameter.grad = random(2, 3, seed=seed + step + 1, scale=scale**step)
        mean, spread = moments.add(parameter.grad.flatten().tolist())
        change = [m / (s + EPS) + weight_decay * w for m, s, w in zip(mean, spread, weights, strict=True)]
        ratio = norm_of(weights) / norm_of(change) if decays else 1.0
        weights = [w - RATE * ratio * u for w, u in zip(weights, change, strict=True)]
        optimizer.step()
        assert parameter.flatten().tolist() == pytest.approx(weights, rel=1e-9, abs=1e-12)


def test_the_first_step_of_lamb() -> None:
    """|w| is 5 and |u| is sqrt(2); where a norm is 0 the ratio is 1. A parameter without a gradient waits."""
    for weights, gradient, expected in (
        ([3.0, 4.0], [7.0, -0.5], [2.646447, 4.353553]),
        ([0.0, 0.0], [7.0, -0.5], [-0.1, 0.1]),
        ([3.0, 4.0], [0.0, 0.0], [3.0, 4.0]),
    ):
        late, parameter = nn.Parameter(torch.tensor(weights)), nn.Parameter(torch.tensor(weights))
        optimizer = Lamb([late, parameter], **LAMB | {"eps": 1e-12})
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
        assert parameter.tolist() == pytest.approx(expected, abs=1e-6)
        assert late.tolist() == weights and not optimizer.state[late]
        late.grad = torch.tensor(gradient)
        optimizer.step()
        assert late.tolist() == pytest.approx(expected, abs=1e-6)


@settings(max_examples=15)
@given(
    st.integers(0, 10**6), st.lists(st.sampled_from([0, 0.5, 1, 3]), min_size=1, max_size=3), st.sampled_from([0, 0.3])
)
def test_steps_of_mtadam_follow_the_equation(seed: int, ranks: list[float], weight_decay: float) -> None:
    """With terms that differ a thousandfold, some without a gradient or with a gradient of 0 for a while."""
    parameter = nn.Parameter(random(2, 3, seed=seed))
    optimizer = MTAdam([parameter], **MTADAM, weight_decay=weight_decay)
    weights, moments, norms = parameter.flatten().tolist(), [Moments(6) for _ in ranks], [0.0] * len(ranks)
    luck = torch.Generator().manual_seed(seed)
    for step in range(5):
        kinds = torch.randint(5, (len(ranks),), generator=luck).tolist()
        found = [
            None if kind == 0 else (kind > 1) * 1000.0**term * random(2, 3, seed=seed + 10 * step + term)
            for term, kind in enumerate(kinds)
        ]
        gradients = {term: gradient.flatten().tolist() for term, gradient in enumerate(found) if gradient is not None}
        for term, gradient in gradients.items():
            new = norm_of(gradient)
            norms[term] = BETAS[2] * norms[term] + (1 - BETAS[2]) * new if moments[term].steps else new
        anchor = next((norms[term] for term in gradients if norms[term] > 1e-10), 1.0)
        moved = []
        for term, gradient in gradients.items():
            factor = ranks[term] * (anchor / norms[term] if norms[term] > 1e-10 else 1.0)
            moved.append(moments[term].add([factor * g for g in gradient]))
        for i, weight in enumerate(weights if moved else []):
            change = sum(mean[i] for mean, _ in moved) / max(spread[i] + EPS for _, spread in moved)
            weights[i] = weight - RATE * (change + weight_decay * weight)
        optimizer.step([[gradient] for gradient in found], ranks)
        assert parameter.flatten().tolist() == pytest.approx(weights, rel=1e-9, abs=1e-12)


def test_norms_are_those_of_single_tensors() -> None:
    """A term that is large in one tensor is not held down in another."""
    one, other = (nn.Parameter(torch.tensor([5.0])) for _ in range(2))
    large, small, half = torch.tensor([-800.0]), torch.tensor([-0.5]), torch.tensor([0.25])
    MTAdam([one, other], lr=1.0, betas=BETAS, eps=1e-8).step([[torch.tensor([2.0]), half], [large, small]], [1.0, 1.0])
    assert [one.item(), other.item()] == pytest.approx([5.0, 5.0])
    with pytest.raises(ValueError, match="zip"):  # as many gradients as parameters
        MTAdam([one], **MTADAM).step([[half, half]], [1.0])


# ---- the gradient of every term by itself, for MTAdam

PRESET = load_config(["optimizer=mtadam"]).optimizer


class Model(nn.Module):
    """Two heads on one trunk, and a parameter that no term reaches."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk, self.idle = nn.Embedding(9, 4), nn.Parameter(torch.ones(2))
        self.heads = nn.ModuleList(nn.Linear(4, 1) for _ in range(2))

    def forward(self, obs: Tensor) -> list[Tensor]:
        return [head(self.trunk(obs))[..., 0] for head in self.heads]


class Three:
    """An objective whose terms are in another order than its weights."""

    weights = {"first": 2.0, "second": 0.5, "both": 1.0}

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        one, other = model(batch.obs)
        terms = {
            "second": 50 * (other - batch.action).square().mean(),
            "first": (one - batch.reward).square().mean(),
            "both": (one * other).square().mean(),
        }
        return terms, {"size": one.abs().mean().detach()}


def by_term(model: nn.Module, max_norm: float = 1e6, **changes: dict[str, Any]) -> Updater:
    options = replace(PRESET, learning_rate=0.1, max_gradient_norm=max_norm, weight_decay=0.01)
    return Updater(model, Three(), replace(config_of(**changes), optimizer=options), CPU, Ranks())


@pytest.mark.parametrize("max_norm", [1e6, 0.5, 1e-3])
def test_an_update_is_a_step_on_the_clipped_gradient_of_each_term(max_norm: float) -> None:
    """A small term keeps its gradient beside a large one."""
    model, expected, ranks = Model(), Model(), [0.5, 2.0, 1.0]
    updater = by_term(model, max_norm)
    metrics = updater.update(batch_at(0), START)
    optimizer = make_optimizer(expected, replace(PRESET, learning_rate=0.1, weight_decay=0.01))
    found = [
        torch.autograd.grad(term, optimizer.parameters, retain_graph=True, materialize_grads=True)
        for term in Three()(expected, batch_at(0))[0].values()
    ]
    scales = [min(1.0, max_norm / flat(gradients).norm().item()) for gradients in found]
    clipped = [[scale * one for one in gradients] for scale, gradients in zip(scales, found, strict=True)]
    optimizer.step(clipped, ranks)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, expected.get_parameter(name), rtol=1e-4, atol=1e-5)
    assert torch.equal(model.idle, torch.ones(2)) and model.idle.grad is None
    whole = sum(rank * flat(gradients) for rank, gradients in zip(ranks, found, strict=True))
    assert metrics["gradient_norm"].item() == pytest.approx(whole.norm().item(), rel=1e-4)
    for parameter, *parts in zip(updater.optimizer.parameters, *clipped, strict=True):
        if parameter.grad is not None:
            total = sum(rank * part for rank, part in zip(ranks, parts, strict=True))
            torch.testing.assert_close(parameter.grad, total, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("number", [3, 4])
def test_accumulation_by_term_equals_one_batch(number: int) -> None:
    """Of eight windows, in even parts and not; what follows a step is called once."""
    (whole, dealt), called = (Model(), Model()), Mock()
    one, several = by_term(whole, 0.5), by_term(dealt, 0.5, trainer={"gradient_accumulation_steps": number})
    several.after_step = called
    for update in range(3):
        metrics, others = one.update(batch_at(update), START), several.update(batch_at(update), START)
        assert metrics.keys() == others.keys() == {"loss", "size", "gradient_norm", *Three.weights}
        total = sum(weight * metrics[name].item() for name, weight in Three.weights.items())
        assert metrics["loss"].item() == pytest.approx(total)
        for name, value in metrics.items():
            assert others[name] == pytest.approx(value.item(), rel=1e-3), name
        torch.testing.assert_close(flat(whole.parameters()), flat(dealt.parameters()), rtol=1e-3, atol=1e-4)
        assert called.call_count == update + 1


def test_several_processes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"optimizer\.name=mtadam .* not 2 processes"):
        Updater(Model(), Three(), replace(config_of(), optimizer=PRESET), CPU, Ranks(0, 2))


def test_what_does_not_go_with_mtadam_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^optimizer.name=mtadam .* device.amp_dtype=float16.*bfloat16 or none"):
        load_config(["optimizer=mtadam", "device.amp_dtype=float16"])
    load_config(["optimizer=mtadam", "optimizer.beta2=0.9", "device.amp_dtype=bfloat16"])
