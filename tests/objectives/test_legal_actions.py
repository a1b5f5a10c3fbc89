"""Objectives where it is known which actions are legal: the others have no part in any softmax.

The world is one point of one coordinate and three actions: an observation is the point, a flag of the coordinate, and
which actions are legal.
"""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from critics import CONFIG as OFFLINE
from critics import config_of, fresh_critic
from hypothesis import given, settings
from hypothesis import strategies as st
from models import outspoken
from torch import Tensor

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.contracts import Batch, EnvSpec
from icrl.nn.critic import Critic
from icrl.nn.gpt import Context, context_of
from icrl.objectives.ad import AlgorithmDistillation
from icrl.objectives.awr import AdvantageWeightedRegression
from icrl.objectives.ilql import ImplicitQLearning

CONFIG = load_config()
SPEC = EnvSpec(4, 3, (0.0, 1.0), 0, max_episode_steps=5, points=(1, 1))
MASKS = [[True, True, False], [False, True, True], [True, False, True], [True, True, True], [False, True, False]]
masks = st.lists(st.sampled_from(MASKS), min_size=4, max_size=4)


class Fixed:
    """Stands for a model: gives the logits it was made with."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits.clone().requires_grad_()

    def __call__(self, context: Context) -> Tensor:
        return self.logits


def batch_of(legal: list[list[bool]], seed: int = 0) -> Batch:
    """One window; of the legal actions a random one was taken."""
    generator = torch.Generator().manual_seed(seed)
    flags = torch.tensor(legal)[None]
    shape = flags.shape[:2]
    seen = torch.randint(4, (*shape, 2), generator=generator)
    obs = torch.cat([seen, flags], dim=-1)
    action = (torch.rand(flags.shape, generator=generator) * flags).argmax(-1)
    zero, weight = torch.zeros(shape, dtype=torch.long), torch.rand(shape, generator=generator) * 3
    return Batch(obs, action, zero, obs, zero, zero, zero, action, weight, zero.float())


def distillation(smoothing: float) -> AlgorithmDistillation:
    return AlgorithmDistillation(replace(CONFIG.objective, label_smoothing=smoothing), SPEC)


def critic_of(**critic: Any) -> Critic:
    config = config_of(critic=critic, encoder={"dropout": 0.0}, decoder={"dropout": 0.0})
    return outspoken(fresh_critic(config, SPEC)).train()


def restricted(logits: Tensor, batch: Batch, t: int) -> tuple[Tensor, Tensor]:
    """What a model that knows the legal actions alone would say of them at step `t`, and which of them was taken."""
    legal = batch.obs[0, t, -3:].bool()
    return logits[0, t][legal], legal[: int(batch.action[0, t])].sum()


@pytest.mark.parametrize(("smoothing", "expected"), [(0.0, math.log(3)), (0.5, math.log(3) - 0.25 * math.log(2))])
def test_a_loss_by_hand(smoothing: float, expected: float) -> None:
    """Logits ln 1, ln 2, ln 97, the last illegal: 1/3 and 2/3 are left. With the target at 3/4 and 1/4,
    -3/4 ln 1/3 - 1/4 ln 2/3 = ln 3 - 1/4 ln 2."""
    batch = batch_of([[True, True, False]])._replace(action=torch.tensor([[0]]), weight=torch.ones(1, 1))
    model = Fixed(torch.tensor([[[1.0, 2.0, 97.0]]]).log())
    terms, metrics = distillation(smoothing)(model, batch)
    assert terms["imitation"].item() == pytest.approx(expected)
    assert metrics["nll"].item() == pytest.approx(math.log(3))
    assert metrics["accuracy"] == 0
    assert distillation(smoothing)(model, batch._replace(action=torch.tensor([[1]])))[1]["accuracy"] == 1


@settings(max_examples=40, deadline=None)
@given(legal=masks, smoothing=st.sampled_from([0.0, 0.3, 1.0]), seed=st.integers(0, 99), size=st.sampled_from([1, 1e4]))
def test_distillation_is_that_of_a_model_of_the_legal_actions_alone(
    legal: list[list[bool]], smoothing: float, seed: int, size: float
) -> None:
    batch = batch_of(legal, seed)
    model = Fixed(torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(seed)) * size)
    terms, metrics = distillation(smoothing)(model, batch)
    terms["imitation"].backward()
    of_few = model.logits.detach().clone().requires_grad_()
    expected, nll, right = torch.zeros(()), 0.0, 0
    for t in range(4):
        logits, taken = restricted(of_few, batch, t)
        expected = expected + batch.weight[0, t] * F.cross_entropy(logits, taken, label_smoothing=smoothing) / 4
        nll += F.cross_entropy(logits.detach(), taken).item() / 4
        right += int(logits.argmax() == taken)
    expected.backward()
    torch.testing.assert_close(terms["imitation"], expected)
    torch.testing.assert_close(model.logits.grad, of_few.grad)
    assert metrics["nll"].item() == pytest.approx(nll, rel=1e-4, abs=1e-6) and metrics["accuracy"] == right / 4


@settings(max_examples=20, deadline=None)
@given(legal=masks, seed=st.integers(0, 99))
def test_weighted_regression_is_that_of_a_model_of_the_legal_actions_alone(legal: list[list[bool]], seed: int) -> None:
    batch = batch_of(legal, seed)
    model = Fixed(torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(seed)) * 9)
    awr = AdvantageWeightedRegression(OFFLINE.awr, critic_of().target)
    terms, metrics = awr(model, batch)
    terms["imitation"].backward()
    assert model.logits.grad.isfinite().all()
    weights = awr.log_weights(awr.advantage(batch).flatten())[0].exp()
    steps = [restricted(model.logits.detach(), batch, t) for t in range(4)]
    losses = torch.stack([F.cross_entropy(logits, taken) for logits, taken in steps])
    torch.testing.assert_close(terms["imitation"].detach(), (losses * weights).mean())
    assert metrics["nll"].item() == pytest.approx(losses.mean().item())
    assert metrics["accuracy"] == sum(int(logits.argmax() == taken) for logits, taken in steps) / 4


@settings(max_examples=20, deadline=None)
@given(legal=masks, seed=st.integers(0, 99))
def test_imitation_beside_values_is_that_of_a_model_of_the_legal_actions_alone(
    legal: list[list[bool]], seed: int
) -> None:
    critic, batch = critic_of(imitation_scaling=1.0), batch_of(legal, seed)
    terms, _ = ImplicitQLearning(critic)(critic, batch)
    terms["imitation"].backward()
    logits = critic(context_of(SPEC, batch.obs, batch.action, batch.reward, batch.timestep)).logits.detach()
    losses = [F.cross_entropy(*restricted(logits, batch, t)).item() for t in range(4)]
    assert terms["imitation"].item() == pytest.approx(sum(losses) / 4, rel=1e-4)
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in critic.parameters())


def test_no_objective_gives_an_illegal_action_a_probability() -> None:
    """What is shown of a batch, and what is legal everywhere, is as the model says."""
    batch, critic, plain = batch_of(MASKS), critic_of(), torch.randn(1, 5, 3)
    awr = AdvantageWeightedRegression(OFFLINE.awr, critic.target)
    said = critic(context_of(SPEC, batch.obs, batch.action, batch.reward, batch.timestep)).least_q
    for objective, model, unmasked in (
        (distillation(0.1), Fixed(plain), plain),
        (awr, Fixed(plain), plain),
        (ImplicitQLearning(critic), critic, said),
    ):
        logits, legal = objective.logits(model, batch)[0], torch.tensor(MASKS)
        assert torch.equal(logits.softmax(-1) > 0, legal)
        assert torch.equal(logits[legal], unmasked[0][legal])
