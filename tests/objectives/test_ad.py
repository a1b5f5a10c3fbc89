"""Distillation and decision pretraining against losses written out number by number; legal actions in every objective.

The world with legal actions has one point of one coordinate; an observation is the point, a flag and legal actions.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from legal_world import LEGAL, MASKS, Fixed, batch_of, context_in, masks
from small_models import CONFIG, SPEC
from small_models import batch_of as windows

from icrl.nn.heads import make_head
from icrl.objectives.imitation import AlgorithmDistillation, DecisionPretraining
from icrl.spaces import EnvSpec

TARGETS = {AlgorithmDistillation: "action", DecisionPretraining: "optimal_action"}


def objective(kind: type = AlgorithmDistillation, spec: EnvSpec = LEGAL) -> AlgorithmDistillation:
    return kind(CONFIG.objective, spec, make_head(CONFIG.model, spec))


def by_hand(logits: list[float], action: int) -> tuple[float, list[float]]:
    """Cross-entropy of one position, and its gradient: probabilities minus target."""
    largest = max(logits)
    total = math.log(sum(math.exp(x - largest) for x in logits)) + largest
    return total - logits[action], [math.exp(x - total) - (i == action) for i, x in enumerate(logits)]


@pytest.mark.parametrize("kind", TARGETS)
@settings(max_examples=15)
@given(st.none() | masks, st.integers(0, 99), st.sampled_from([1, 1e3]))
def test_loss_and_gradient_equal_those_by_hand(kind, legal, seed, size) -> None:
    """Of a model that knows the legal actions alone. The context shows the source's actions, whatever the target is."""
    batch, spec = (batch_of(legal, seed), LEGAL) if legal else (windows(3, 4, seed), SPEC)
    generator, shape = torch.Generator().manual_seed(seed), batch.action.shape
    model = Fixed(torch.randn(*shape, spec.num_actions, generator=generator) * size)
    batch = batch._replace(weight=torch.rand(shape, generator=generator) * 3)
    aim = objective(kind, spec)
    terms, metrics = aim(model, batch)
    assert aim.weights == {"imitation": 1.0} and terms.keys() == aim.weights.keys()
    terms["imitation"].backward()
    losses, nll, right, count = 0.0, 0.0, 0, batch.action.numel()
    for b, t in np.ndindex(shape):
        allowed = [a for a in range(spec.num_actions) if not legal or legal[t][a]]
        logits = [model.logits[b, t, a].item() for a in allowed]
        action = allowed.index(int(getattr(batch, TARGETS[kind])[b, t]))
        one, gradient = by_hand(logits, action)
        weight, expected = float(batch.weight[b, t]), [0.0] * spec.num_actions
        for a, of_action in zip(allowed, gradient, strict=True):
            expected[a] = weight * of_action / count
        assert model.logits.grad[b, t].tolist() == pytest.approx(expected, abs=1e-6 * size)
        losses += weight * one / count
        nll += one / count
        right += logits.index(max(logits)) == action
    assert terms["imitation"].item() == pytest.approx(losses, rel=1e-5, abs=1e-6)  # of numbers up to `size`
    assert metrics["nll"].item() == pytest.approx(nll, rel=1e-5, abs=1e-6) and not metrics["nll"].requires_grad
    assert metrics["accuracy"].item() == pytest.approx(right / count)
    assert all(torch.equal(a, b) for a, b in zip(model.shown, context_in(batch, spec), strict=True))


def test_no_objective_gives_an_illegal_action_a_probability() -> None:
    batch, plain, legal = batch_of(MASKS), torch.randn(1, 5, 3), torch.tensor(MASKS)
    logits = objective().logits(Fixed(plain), batch)[0]
    assert torch.equal(logits.softmax(-1) > 0, legal) and torch.equal(logits[legal], plain[0][legal])
