"""Distillation and decision pretraining against losses written out number by number; legal actions in every objective.

The world with legal actions has one point of one coordinate and three actions: an observation is the point, a flag of
the coordinate, and which actions are legal.
"""

import itertools
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from critics import CONFIG, SPEC, config_of, fresh_critic
from critics import batch_of as windows
from hypothesis import given, settings
from hypothesis import strategies as st
from models import outspoken
from torch import Tensor

from icrl.config.options import replace
from icrl.contracts import Batch, EnvSpec
from icrl.nn.critic import Critic
from icrl.nn.gpt import Context, context_of
from icrl.objectives.ilql import ImplicitQLearning
from icrl.objectives.imitation import (
    AdvantageWeightedRegression,
    AlgorithmDistillation,
    DecisionPretraining,
    batch_context,
)

LEGAL = EnvSpec(4, 3, (0.0, 1.0), 0, max_episode_steps=5, points=(1, 1))
NUM_WINDOWS, LENGTH = 3, 4
TARGETS = {AlgorithmDistillation: "action", DecisionPretraining: "optimal_action"}


class Fixed:
    """A model that returns given logits and keeps its input."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits.clone().requires_grad_()

    def __call__(self, context: Context) -> Tensor:
        self.shown = context
        return self.logits


def objective(
    smoothing: float, kind: type[AlgorithmDistillation] = AlgorithmDistillation, spec: EnvSpec = SPEC
) -> AlgorithmDistillation:
    return kind(replace(CONFIG.objective, label_smoothing=smoothing), spec)


def example() -> tuple[Fixed, Batch]:
    generator, shape = torch.Generator().manual_seed(0), (NUM_WINDOWS, LENGTH)
    weight = torch.rand(shape, generator=generator) * 3
    return Fixed(torch.randn(*shape, SPEC.num_actions, generator=generator)), windows(*shape)._replace(weight=weight)


def by_hand(logits: list[float], action: int, smoothing: float) -> tuple[float, list[float]]:
    """Cross-entropy of one position, and its gradient: probabilities minus target."""
    total = sum(math.exp(x) for x in logits)
    probabilities = [math.exp(x) / total for x in logits]
    target = [smoothing / len(logits) + (1 - smoothing) * (i == action) for i in range(len(logits))]
    loss = -sum(t * math.log(p) for t, p in zip(target, probabilities, strict=True))
    return loss, [p - t for p, t in zip(probabilities, target, strict=True)]


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_loss_and_gradient_equal_those_by_hand(smoothing: float, kind: type[AlgorithmDistillation]) -> None:
    """The context shows the source's actions, whatever the target is."""
    model, batch = example()
    aim = objective(smoothing, kind)
    terms, metrics = aim(model, batch)
    assert aim.weights == {"imitation": 1.0} and terms.keys() == aim.weights.keys()
    terms["imitation"].backward()
    count = NUM_WINDOWS * LENGTH
    losses, nll, right = 0.0, 0.0, 0
    for b, t in itertools.product(range(NUM_WINDOWS), range(LENGTH)):
        logits, action = model.logits[b, t].tolist(), int(getattr(batch, TARGETS[kind])[b, t])
        one, gradient = by_hand(logits, action, smoothing)
        weight = float(batch.weight[b, t])
        losses += weight * one / count
        nll += by_hand(logits, action, 0.0)[0] / count
        right += max(range(SPEC.num_actions), key=logits.__getitem__) == action
        assert model.logits.grad[b, t].tolist() == pytest.approx([weight * g / count for g in gradient], abs=1e-6)
    assert terms["imitation"].item() == pytest.approx(losses, abs=1e-6)
    assert metrics["nll"].item() == pytest.approx(nll, abs=1e-6) and not metrics["nll"].requires_grad
    assert metrics["accuracy"].item() == pytest.approx(right / count)
    expected = context_of(SPEC, batch.obs, batch.action, batch.reward, batch.timestep)
    assert all(torch.equal(a, b) for a, b in zip(model.shown, expected, strict=True))


# ---- legal actions: the others have no part in any softmax

MASKS = [[True, True, False], [False, True, True], [True, False, True], [True, True, True], [False, True, False]]
masks = st.lists(st.sampled_from(MASKS), min_size=4, max_size=4)


def batch_of(legal: list[list[bool]], seed: int = 0) -> Batch:
    """One window in which random legal actions were taken."""
    generator = torch.Generator().manual_seed(seed)
    flags = torch.tensor(legal)[None]
    shape = flags.shape[:2]
    obs = torch.cat([torch.randint(4, (*shape, 2), generator=generator), flags], dim=-1)
    action = (torch.rand(flags.shape, generator=generator) * flags).argmax(-1)
    zero, weight = torch.zeros(shape, dtype=torch.long), torch.rand(shape, generator=generator) * 3
    return Batch(obs, action, zero, obs, zero, zero, zero, action, weight, zero.float())


def critic_of(**critic: Any) -> Critic:
    config = config_of(critic=critic, encoder={"dropout": 0.0}, decoder={"dropout": 0.0})
    return outspoken(fresh_critic(config, LEGAL)).train()


def restricted(logits: Tensor, batch: Batch, t: int) -> tuple[Tensor, Tensor]:
    """Logits at step `t` of a model that knows the legal actions alone, and the index among them of the one taken."""
    legal = batch.obs[0, t, -3:].bool()
    return logits[0, t][legal], legal[: int(batch.action[0, t])].sum()


@settings(max_examples=25, deadline=None)
@given(legal=masks, smoothing=st.sampled_from([0.0, 0.3, 1.0]), seed=st.integers(0, 99), size=st.sampled_from([1, 1e4]))
def test_distillation_equals_that_of_a_model_of_legal_actions(
    legal: list[list[bool]], smoothing: float, seed: int, size: float
) -> None:
    batch = batch_of(legal, seed)
    model = Fixed(torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(seed)) * size)
    terms, metrics = objective(smoothing, spec=LEGAL)(model, batch)
    terms["imitation"].backward()
    of_few = model.logits.detach().clone().requires_grad_()
    expected, right = torch.zeros(()), 0
    for t in range(4):
        logits, taken = restricted(of_few, batch, t)
        expected = expected + batch.weight[0, t] * F.cross_entropy(logits, taken, label_smoothing=smoothing) / 4
        right += int(logits.argmax() == taken)
    expected.backward()
    torch.testing.assert_close(terms["imitation"], expected)
    torch.testing.assert_close(model.logits.grad, of_few.grad)
    assert metrics["accuracy"] == right / 4


@settings(max_examples=10, deadline=None)
@given(legal=masks, seed=st.integers(0, 99))
def test_other_imitation_equals_that_of_a_model_of_legal_actions(legal: list[list[bool]], seed: int) -> None:
    """Advantage-weighted regression, and imitation beside values."""
    batch, critic = batch_of(legal, seed), critic_of(imitation_scaling=1.0)
    model = Fixed(torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(seed)) * 9)
    awr = AdvantageWeightedRegression(CONFIG.awr, critic_of().target)
    terms, _ = awr(model, batch)
    terms["imitation"].backward()
    assert model.logits.grad.isfinite().all()
    weights = awr.log_weights(awr.advantage(batch).flatten())[0].exp()
    losses = torch.stack([F.cross_entropy(*restricted(model.logits.detach(), batch, t)) for t in range(4)])
    torch.testing.assert_close(terms["imitation"].detach(), (losses * weights).mean())
    terms, _ = ImplicitQLearning(critic)(critic, batch)
    terms["imitation"].backward()
    logits = critic(batch_context(LEGAL, batch)).logits.detach()
    expected = sum(F.cross_entropy(*restricted(logits, batch, t)).item() for t in range(4)) / 4
    assert terms["imitation"].item() == pytest.approx(expected, rel=1e-4)
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in critic.parameters())


def test_no_objective_gives_an_illegal_action_a_probability() -> None:
    batch, critic, plain, legal = batch_of(MASKS), critic_of(), torch.randn(1, 5, 3), torch.tensor(MASKS)
    for one, model, unmasked in (
        (objective(0.1, spec=LEGAL), Fixed(plain), plain),
        (AdvantageWeightedRegression(CONFIG.awr, critic.target), Fixed(plain), plain),
        (ImplicitQLearning(critic), critic, critic(batch_context(LEGAL, batch)).least_q),
    ):
        logits = one.logits(model, batch)[0]
        assert torch.equal(logits.softmax(-1) > 0, legal)
        assert torch.equal(logits[legal], unmasked[0][legal])
