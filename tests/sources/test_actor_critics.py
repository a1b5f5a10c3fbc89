"""A2C and PPO against one plain PyTorch learner, and against numbers worked out by hand."""

from typing import Any

import pytest
import torch
from probes import (
    OTHER_REWARDS,
    START,
    PlainActorCritic,
    falling,
    learn_from,
    learners_of,
    random_rollout,
    sample_of,
    transition,
)
from torch import Tensor

from icrl.contracts import Rollout, Sample

RATES = {
    "learning_rate": falling(0.06, 0.02),
    "value_coefficient": falling(1.0, 0.2),
    "entropy_coefficient": falling(0.1, 0.3),
}
clipped_or_not = pytest.mark.parametrize("max_gradient_norm", [0.05, 50.0])
Rates = tuple[float, float, float]


def streams_of(sample: Sample, streams: slice) -> Sample:
    rollout = Rollout(*(column[:, streams] for column in sample.rollout))
    return sample_of(rollout, targets={name: column[:, streams] for name, column in sample.targets.items()})


class PlainA2C(PlainActorCritic):
    """One transition at a time."""

    def update(self, sample: Sample, rates: Rates, update: int) -> dict[str, float]:
        samples = sample.rollout
        num_steps, num_envs = samples.obs.shape
        policy_loss = value_loss = entropy = torch.zeros(())
        for env in range(num_envs):
            ahead = 0.0
            for t in reversed(range(num_steps)):
                if samples.terminated[t, env]:
                    ahead = 0.0
                elif samples.truncated[t, env] or t == num_steps - 1:
                    ahead = self.value(samples.next_obs[t, env]).item()
                ahead = OTHER_REWARDS.reward_values[samples.reward[t, env]] + self.config.discount * ahead
                policy = self.policy(samples.obs[t, env])
                advantage = ahead - self.value(samples.obs[t, env])
                policy_loss = policy_loss - policy.log_prob(samples.action[t, env]) * advantage.detach()
                value_loss = value_loss + advantage**2
                entropy = entropy + policy.entropy()
        parts = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        return self.descend({name: total / (num_steps * num_envs) for name, total in parts.items()}, rates)


class PlainPPO(PlainActorCritic):
    """One transition at a time."""

    @torch.no_grad()
    def targets(self, samples: Rollout) -> dict[str, Tensor]:
        """Of `[T, N]`, by the networks as they are now."""
        num_steps, num_envs = samples.obs.shape
        targets = {name: torch.zeros(num_steps, num_envs) for name in ("log_prob", "advantage", "return")}
        decay = self.config.discount * self.config.gae_lambda
        for env in range(num_envs):
            advantage = 0.0
            for t in reversed(range(num_steps)):
                value, ahead = self.value(samples.obs[t, env]).item(), self.value(samples.next_obs[t, env]).item()
                if samples.terminated[t, env]:
                    ahead = 0.0
                if samples.terminated[t, env] or samples.truncated[t, env]:
                    advantage = 0.0
                reward = OTHER_REWARDS.reward_values[samples.reward[t, env]]
                advantage = reward + self.config.discount * ahead - value + decay * advantage
                targets["log_prob"][t, env] = self.policy(samples.obs[t, env]).log_prob(samples.action[t, env])
                targets["advantage"][t, env], targets["return"][t, env] = advantage, advantage + value
        return targets

    def update(self, sample: Sample, rates: Rates, update: int) -> dict[str, float]:
        samples, targets, clip_range = sample.rollout, sample.targets, 0.1 - 0.02 * update
        advantages = targets["advantage"]
        if self.config.normalize_advantage:
            advantages = (advantages - advantages.mean()) / (advantages.var(correction=0).sqrt() + 1e-8)
        policy_loss = value_loss = entropy = torch.zeros(())
        kl = clipped = 0.0
        for t in range(len(samples.obs)):
            for window in range(samples.obs.shape[1]):
                policy = self.policy(samples.obs[t, window])
                ratio = (policy.log_prob(samples.action[t, window]) - targets["log_prob"][t, window]).exp()
                outside = bool(abs(ratio - 1) > clip_range)
                bound = 1 + clip_range if ratio > 1 else 1 - clip_range
                gain = ratio * advantages[t, window]
                policy_loss = policy_loss - (min(gain, bound * advantages[t, window]) if outside else gain)
                value_loss = value_loss + (targets["return"][t, window] - self.value(samples.obs[t, window])) ** 2
                entropy = entropy + policy.entropy()
                kl += (ratio - 1 - ratio.log()).item()
                clipped += outside
        count = samples.obs.numel()
        parts = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        metrics = self.descend({name: total / count for name, total in parts.items()}, rates)
        return metrics | {"approx_kl": kl / count, "clip_fraction": clipped / count}


@clipped_or_not
@pytest.mark.parametrize(
    ("name", "plain", "options"),
    [
        ("a2c", PlainA2C, {}),
        ("ppo", PlainPPO, {"clip_range": falling(0.1, 0.02), "normalize_advantage": False}),
        ("ppo", PlainPPO, {"clip_range": falling(0.1, 0.02), "normalize_advantage": True}),
    ],
)
def test_updates_equal_those_of_a_plain_learner(name: str, plain: Any, options: Any, max_gradient_norm: float) -> None:
    """Loss, gradient and parameters, with the gradient clipped (0.05) and not, while all rates change. PPO learns four
    times from the targets of one unroll, so that the policy leaves the one that played."""
    learners = learners_of(name, 2, OTHER_REWARDS, max_gradient_norm=max_gradient_norm, **RATES, **options)
    others = [plain(learners.config, learners, index) for index in range(2)]
    samples = random_rollout(5, 6, 1)
    targets = learners.targets(samples)
    for update in range(4):
        learners.set_clock(START._replace(iterations=update))
        if name == "a2c":
            samples = random_rollout(5, 6, update)
        sample = sample_of(samples, targets=targets)
        learned = learners.update(sample)
        assert learned.td_error is None
        rates = (0.06 - 0.01 * update, 1.0 - 0.2 * update, 0.1 + 0.05 * update)
        for index, one in enumerate(others):
            expected = one.update(streams_of(sample, slice(3 * index, 3 * index + 3)), rates, update)
            got = {name: values[index].item() for name, values in learned.metrics.items()}
            assert got == pytest.approx(expected, abs=2e-5)
            assert (expected["gradient_norm"] > max_gradient_norm) == (max_gradient_norm == 0.05)
            assert name == "a2c" or (expected["clip_fraction"] > 0) == (update > 0)
            one.assert_equal()


def test_ppo_targets_equal_those_of_a_plain_learner() -> None:
    learners = learners_of("ppo", 2, OTHER_REWARDS, gae_lambda=0.7, discount=0.8)
    samples = random_rollout(6, 6, 0)
    targets = learners.targets(samples)
    for index in range(2):
        streams = slice(3 * index, 3 * index + 3)
        own = streams_of(sample_of(samples), streams).rollout
        expected = PlainPPO(learners.config, learners, index).targets(own)
        assert set(targets) == set(expected)
        for name, values in expected.items():
            assert targets[name].shape == (6, 6) and not targets[name].requires_grad
            assert torch.allclose(targets[name][:, streams], values, atol=1e-5)


ACTOR_ALONE = {"value_coefficient": 0.0, "entropy_coefficient": 0.0}


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "pushes"),
    [
        (1.4, 2.0, -2 * 1.25, False),  # it gained enough
        (1.4, -2.0, 2 * 1.4, True),  # it went the wrong way: not clipped
        (0.5, 2.0, -2 * 0.5, True),
        (0.5, -2.0, 2 * 0.75, False),
        (1.2, 2.0, -2 * 1.2, True),
    ],
)
def test_ppo_clip_by_hand(ratio: float, advantage: float, loss: float, *, pushes: bool) -> None:
    """clip_range 0.25. The actor's gradient is 0 if the loss is clipped."""
    learner = learners_of("ppo", 1, clip_range=0.25, normalize_advantage=False, **ACTOR_ALONE)
    played = transition(2, 1, 0, 3, terminated=False, truncated=False)
    log_prob = learner.targets(played)["log_prob"] - torch.tensor(ratio).log()
    targets = {"log_prob": log_prob, "advantage": torch.tensor([[advantage]]), "return": torch.zeros(1, 1)}
    metrics = learner.update(sample_of(played, targets=targets)).metrics
    assert metrics["policy_loss"].item() == pytest.approx(loss, rel=1e-4)
    assert (metrics["gradient_norm"].item() > 1e-3) == pushes
    assert metrics["clip_fraction"].item() == (ratio != 1.2)


def test_ppo_normalizes_advantages_for_each_learner() -> None:
    """The policy is the one that played, so the loss is minus the mean advantage: 0 for every learner. Equal advantages
    give no gradient, and no division by 0."""
    played = random_rollout(4, 6, 0)
    advantage = torch.tensor([1.0, 1.0, 1.0, -50.0, 0.0, 80.0]).expand(4, 6)
    for normalize, expected in ((True, [0.0, 0.0]), (False, [-1.0, -10.0])):
        learners = learners_of("ppo", 2, normalize_advantage=normalize, **ACTOR_ALONE)
        targets = learners.targets(played) | {"advantage": advantage}
        metrics = learners.update(sample_of(played, targets=targets)).metrics
        assert metrics["policy_loss"].tolist() == pytest.approx(expected, abs=1e-5)
        assert (metrics["gradient_norm"] > 1e-3).tolist() == [not normalize, True]


def test_a2c_reads_no_weights() -> None:
    ones, other = (learners_of("a2c", 2) for _ in range(2))
    rollout = random_rollout(3, 4, 0)
    metrics = [learn_from(ones, rollout).metrics, other.update(sample_of(rollout, torch.rand(4))).metrics]
    assert all(torch.equal(metrics[0][name], metrics[1][name]) for name in metrics[0])
