"""Distillation and decision pretraining against losses written out number by number; legal actions in every objective.

The world with legal actions has one point of one coordinate; an observation is the point, a flag and legal actions.
"""

import math

import numpy as np
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
from icrl.contracts import Batch
from icrl.nn.critic import Critic
from icrl.nn.gpt import Context, Window, context_of
from icrl.objectives.ilql import ImplicitQLearning
from icrl.objectives.imitation import AdvantageWeightedRegression, AlgorithmDistillation, DecisionPretraining
from icrl.spaces import EnvSpec, discrete_spec

LEGAL = discrete_spec(4, 3, (0.0, 1.0), 0, max_episode_steps=5, points=(1, 1))
TARGETS = {AlgorithmDistillation: "action", DecisionPretraining: "optimal_action"}


class Fixed:
    """A model that returns given logits and keeps its input."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits.clone().requires_grad_()

    def __call__(self, context: Context) -> Tensor:
        self.shown = context
        return self.logits


def objective(smoothing: float, kind: type = AlgorithmDistillation, spec: EnvSpec = LEGAL) -> AlgorithmDistillation:
    return kind(replace(CONFIG.objective, label_smoothing=smoothing), spec)


def context_in(batch: Batch, spec: EnvSpec = LEGAL) -> Context:
    return context_of(Window.of(batch))


def by_hand(logits: list[float], action: int, smoothing: float) -> tuple[float, list[float]]:
    """Cross-entropy of one position, and its gradient: probabilities minus target."""
    largest = max(logits)
    total = math.log(sum(math.exp(x - largest) for x in logits)) + largest
    target = [smoothing / len(logits) + (1 - smoothing) * (i == action) for i in range(len(logits))]
    loss = sum(t * (total - x) for t, x in zip(target, logits, strict=True))
    return loss, [math.exp(x - total) - t for t, x in zip(target, logits, strict=True)]


MASKS = [[True, True, False], [False, True, True], [True, False, True], [True, True, True], [False, True, False]]
masks = st.lists(st.sampled_from(MASKS), min_size=4, max_size=4)


def batch_of(legal: list[list[bool]], seed: int = 0) -> Batch:
    """One window in which random legal actions were taken, and others would have been best."""
    generator = torch.Generator().manual_seed(seed)
    flags = torch.tensor(legal)[None]
    obs = torch.cat([torch.randint(4, (1, len(legal), 2), generator=generator), flags], dim=-1)
    action, best = ((torch.rand(flags.shape, generator=generator) * flags).argmax(-1) for _ in range(2))
    zero = torch.zeros_like(action)
    return Batch(obs, action, zero, obs, zero, zero, zero, best, zero + 1.0, zero.float())


def critic_of(**critic) -> Critic:
    config = config_of(critic=critic, encoder={"dropout": 0.0}, decoder={"dropout": 0.0})
    return outspoken(fresh_critic(config, LEGAL)).train()


def restricted(logits: Tensor, batch: Batch, t: int) -> tuple[Tensor, Tensor]:
    """Logits at step `t` of a model that knows the legal actions alone, and the index among them of the one taken."""
    legal = batch.obs[0, t, -3:].bool()
    return logits[0, t][legal], legal[: int(batch.action[0, t])].sum()


@pytest.mark.parametrize("kind", TARGETS)
@settings(max_examples=15, deadline=None)
@given(st.none() | masks, st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 99), st.sampled_from([1, 1e3]))
def test_loss_and_gradient_equal_those_by_hand(kind, legal, smoothing, seed, size) -> None:
    """Of a model that knows the legal actions alone. The context shows the source's actions, whatever the target is."""
    batch, spec = (batch_of(legal, seed), LEGAL) if legal else (windows(3, 4, seed), SPEC)
    generator, shape = torch.Generator().manual_seed(seed), batch.action.shape
    model = Fixed(torch.randn(*shape, spec.num_actions, generator=generator) * size)
    batch = batch._replace(weight=torch.rand(shape, generator=generator) * 3)
    aim = objective(smoothing, kind, spec)
    terms, metrics = aim(model, batch)
    assert aim.weights == {"imitation": 1.0} and terms.keys() == aim.weights.keys()
    terms["imitation"].backward()
    losses, nll, right, count = 0.0, 0.0, 0, batch.action.numel()
    for b, t in np.ndindex(shape):
        allowed = [a for a in range(spec.num_actions) if not legal or legal[t][a]]
        logits = [model.logits[b, t, a].item() for a in allowed]
        action = allowed.index(int(getattr(batch, TARGETS[kind])[b, t]))
        one, gradient = by_hand(logits, action, smoothing)
        weight, expected = float(batch.weight[b, t]), [0.0] * spec.num_actions
        for a, of_action in zip(allowed, gradient, strict=True):
            expected[a] = weight * of_action / count
        assert model.logits.grad[b, t].tolist() == pytest.approx(expected, abs=1e-6 * size)
        losses += weight * one / count
        nll += by_hand(logits, action, 0.0)[0] / count
        right += logits.index(max(logits)) == action
    assert terms["imitation"].item() == pytest.approx(losses, rel=1e-5, abs=1e-6)  # of numbers up to `size`
    assert metrics["nll"].item() == pytest.approx(nll, rel=1e-5, abs=1e-6) and not metrics["nll"].requires_grad
    assert metrics["accuracy"].item() == pytest.approx(right / count)
    assert all(torch.equal(a, b) for a, b in zip(model.shown, context_in(batch, spec), strict=True))


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
    logits = critic(context_in(batch)).logits.detach()
    expected = sum(F.cross_entropy(*restricted(logits, batch, t)).item() for t in range(4)) / 4
    assert terms["imitation"].item() == pytest.approx(expected, rel=1e-4)
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in critic.parameters())


def test_no_objective_gives_an_illegal_action_a_probability() -> None:
    batch, critic, plain, legal = batch_of(MASKS), critic_of(), torch.randn(1, 5, 3), torch.tensor(MASKS)
    for one, model, unmasked in (
        (objective(0.1), Fixed(plain), plain),
        (AdvantageWeightedRegression(CONFIG.awr, critic.target), Fixed(plain), plain),
        (ImplicitQLearning(critic), critic, critic(context_in(batch)).least_q),
    ):
        logits = one.logits(model, batch)[0]
        assert torch.equal(logits.softmax(-1) > 0, legal)
        assert torch.equal(logits[legal], unmasked[0][legal])
