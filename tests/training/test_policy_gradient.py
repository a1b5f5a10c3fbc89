"""Bonus, advantages and loss of policy gradients over trials, against numbers by hand and scalar references."""

import itertools
import math

import pytest
import torch
from probes import random_rollout
from torch import Tensor, nn

from icrl.config.schedules import Clock
from icrl.nn.heads import Categorical
from icrl.spaces import discrete_spec
from icrl.training.policy_gradient import (
    FinetuneConfig,
    PolicyGradient,
    TrialBatch,
    discoveries,
    group_advantages,
    numbered_obs,
    successes,
)

SPEC = discrete_spec(num_obs=9, num_actions=3, reward_values=(0.0, 1.0), width=3, max_episode_steps=20)
OPTIONS, HEAD = FinetuneConfig(entropy_coefficient=0.25), Categorical(3)


def test_advantages_by_hand():
    """Rewards after a reset count, discounted by one half a step; the other task does not."""
    reward = torch.tensor([[0.0, 0, 0, 0, 0], [0, 1, 0, 0, 0], [1, 0, 0, 0, 0]])
    difference = torch.tensor([[0.0, 0.25, -0.25], [0.0, 0.5, -0.5], [2 / 3, -1 / 3, -1 / 3]])
    spread = math.sqrt((2 * 0.25**2 + 2 * 0.5**2 + 2 / 3) / 9)
    found = group_advantages(reward, torch.tensor([0, 0, 0, 1, 1]), 0.5)
    assert torch.allclose(found[:, :3], difference / spread) and found[:, 3:].eq(0).all()


def test_the_streams_of_a_task_are_compared_with_each_other_alone():
    """However many they are and wherever they lie, and whatever the scale of rewards is."""
    reward = torch.rand(7, 9, generator=torch.Generator().manual_seed(0))
    group = torch.tensor([2, 0, 2, 1, 1, 2, 0, 2, 1])
    together, scaled = (group_advantages(factor * reward, group, 0.9) for factor in (1, 5))
    assert torch.allclose(scaled, together, atol=1e-5)
    for number in range(3):
        own = group == number
        assert torch.allclose(together[:, own], group_advantages(reward[:, own], torch.zeros_like(group[own]), 0.9))


def test_streams_that_are_alike_have_no_advantages():
    """Though a mean of equal numbers may differ from them by a rounding."""
    for number in (3, 7, 57):
        reward = torch.linspace(0.1, 1.0, 100)[:, None].repeat(1, number)
        assert group_advantages(reward, torch.zeros(number, dtype=torch.long), 0.96).abs().max() < 1e-6


def test_discoveries_equal_those_of_sets():
    """What was seen before a reset is not new after it, nor is a start; nothing is new from the first success on."""
    trials = random_rollout(12, 40, seed=3)
    found = discoveries(SPEC, trials)
    assert found.any() and not found.all()
    for stream in range(40):
        seen, over = set(), False
        for t in range(12):
            obs, _, reward, after, *_ = (int(column[t, stream]) for column in trials)
            seen.add(obs)
            over = over or reward > 0
            assert bool(found[t, stream]) == (after not in seen and not over)
            seen.add(after)


def test_the_best_of_several_actions_is_right_in_all_of_them():
    spec, trials = SPEC._replace(success="best_action"), random_rollout(12, 40, seed=3)
    best = random_rollout(12, 40, seed=4).action[..., None].expand(-1, -1, 2).clone()
    action = best.clone()
    action[::2, :, 1] += 1
    last = trials.terminated | trials.truncated
    found = successes(spec, trials._replace(action=action, optimal_action=best))
    assert found[1::2].any() and not found[::2].any() and torch.equal(found[1::2], last[1::2])


@pytest.mark.parametrize("shape", [(3,), (2, 2, 3)])
def test_observations_of_several_numbers_are_new_as_those_of_one_number_are(shape):
    """Each number stands for an observation of its own."""
    trials = random_rollout(12, 40, seed=3)
    drawn = torch.randint(0, 256, (9, *shape), generator=torch.Generator().manual_seed(1)).to(torch.uint8)
    several = trials._replace(obs=drawn[trials.obs], next_obs=drawn[trials.next_obs])
    assert torch.equal(discoveries(SPEC, several), discoveries(SPEC, trials))
    every = torch.cartesian_prod(*[torch.arange(2)] * math.prod(shape)).view(1, -1, *shape)
    assert numbered_obs(every).unique().numel() == every.shape[1]


class Table(nn.Module):
    """A model with the logits `[B, T, A]` as its parameters."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, _: object) -> Tensor:
        return self.logits


def random_batch(size: tuple[int, int], seed: int = 0) -> tuple[Table, TrialBatch]:
    generator = torch.Generator().manual_seed(seed)
    logits, actor = (torch.randn(*size, 3, generator=generator) for _ in range(2))
    obs, action, reward = (torch.randint(high, size, generator=generator) for high in (9, 3, 2))
    chosen = actor.log_softmax(-1).gather(-1, action[..., None])[..., 0]
    advantage = torch.randn(size, generator=generator)
    return Table(logits), TrialBatch(obs, action, reward, obs, advantage, chosen, torch.ones(size))


def test_the_loss_and_its_gradient_equal_scalar_ones():
    """Ratios beyond the range in the direction of the advantage have no gradient."""
    model, batch = random_batch((4, 6))
    falling = {"kind": "linear", "progress": "iterations", "points": [[0, 1.0], [4, 0.0]]}
    options, clocks = OPTIONS.model_copy(update={"entropy_coefficient": falling}), iter([0, 3])
    made = SPEC, HEAD, lambda: {"return": torch.ones(())}, lambda: Clock(0.0, next(clocks), 0, 0)
    objective = PolicyGradient(options, *made)
    terms, metrics = objective(model, batch)
    policy, entropy, clipped = [], [], []
    for b, t in itertools.product(range(4), range(6)):
        pi = model.logits[b, t].exp() / model.logits[b, t].exp().sum()
        ratio, advantage = pi[batch.action[b, t]] / math.exp(batch.log_prob[b, t]), batch.advantage[b, t].item()
        policy.append(-min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage))
        entropy.append(-sum(p * p.log() for p in pi))
        clipped.append(float(abs(ratio - 1) > 0.2))
    for name, values in {"policy": policy, "entropy": entropy}.items():
        expected = sum(values) / 24
        assert terms[name].item() == pytest.approx(expected.item(), rel=1e-4)
        gradients = (torch.autograd.grad(loss, model.logits, retain_graph=True)[0] for loss in (terms[name], expected))
        torch.testing.assert_close(*gradients)
    assert metrics["clipped"].item() == pytest.approx(sum(clipped) / 24) and 0 < sum(clipped) < 24
    assert metrics["return"] == 1 and objective.weights == {"policy": 1.0, "entropy": -0.25}  # raises entropy


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_illegal_actions_have_no_share_in_any_term(dtype):
    """Flags of legal actions are the last numbers of an observation."""
    spec = discrete_spec(4, 3, (0.0, 1.0), 0, 20, points=(1, 2))
    model, batch = random_batch((2, 4))
    model = Table(model.logits.detach().to(dtype))
    obs = torch.zeros(2, 4, *spec.obs_shape, dtype=torch.long)
    obs[..., -3:-1] = 1  # the third action is illegal
    batch = batch._replace(obs=obs, action=batch.action % 2)
    terms, _ = PolicyGradient(OPTIONS, spec, HEAD, dict)(model, batch)
    pi = model.logits[..., :2].float().softmax(-1)
    assert terms["entropy"].item() == pytest.approx(-(pi * pi.log()).sum(-1).mean().item(), rel=1e-5)
    (gradient,) = torch.autograd.grad(sum(terms.values()), model.logits)
    assert gradient[..., 2].eq(0).all() and gradient.isfinite().all()
