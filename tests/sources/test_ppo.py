"""PPO against one plain PyTorch learner, against numbers worked out by hand, and against itself alone. What it
shares with A2C is tested there and in test_actor_critics.py."""

import copy
from typing import Any, cast

import pytest
import torch
from probes import (
    CPU,
    OTHER_REWARDS,
    SPEC,
    START,
    PlainActorCritic,
    alone_and_among_others,
    falling,
    learn_from,
    random_rollout,
    sample_of,
    transition,
)
from torch import Tensor

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.config.training_schema import PPOConfig
from icrl.contracts import Rollout
from icrl.randomness import stream_seeds
from icrl.sources.ppo import PPO

CONFIG = load_config(["source=ppo"])


def source_config(**changes: Any) -> PPOConfig:
    return replace(cast(PPOConfig, CONFIG.source), **{"hidden_size": 8} | changes)


class PlainLearner(PlainActorCritic):
    """One sample at a time."""

    @torch.no_grad()
    def targets(self, samples: Rollout) -> dict[str, list[list[float]]]:
        """Of `[T, N]`, by the networks as they are now, as lists `[T][N]`."""
        num_steps, num_envs = samples.obs.shape
        names = ("log_prob", "advantage", "return")
        targets = {name: [[0.0] * num_envs for _ in range(num_steps)] for name in names}
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
                log_prob = self.policy(samples.obs[t, env]).log_prob(samples.action[t, env]).item()
                found = dict(zip(names, (log_prob, advantage, advantage + value), strict=True))
                for name in names:
                    targets[name][t][env] = found[name]
        return targets

    def update(
        self, samples: Rollout, targets: dict[str, Tensor], rates: tuple[float, float, float], clip_range: float
    ) -> dict[str, float]:
        """`samples` and `targets` `[T, W]` of this learner's windows."""
        advantages = targets["advantage"]
        if self.config.normalize_advantage:
            advantages = (advantages - advantages.mean()) / (advantages.var(correction=0).sqrt() + 1e-8)
        policy_loss = value_loss = entropy = torch.zeros(())
        kl = clipped = 0.0
        for t in range(len(samples.obs)):
            for window in range(samples.obs.shape[1]):
                policy = self.policy(samples.obs[t, window])
                ratio = (policy.log_prob(samples.action[t, window]) - targets["log_prob"][t, window]).exp()
                advantage = advantages[t, window]
                outside = bool(abs(ratio - 1) > clip_range)
                bound = 1 + clip_range if ratio > 1 else 1 - clip_range
                gain = min(ratio * advantage, bound * advantage) if outside else ratio * advantage
                policy_loss = policy_loss - gain
                value_loss = value_loss + (targets["return"][t, window] - self.value(samples.obs[t, window])) ** 2
                entropy = entropy + policy.entropy()
                kl += (ratio - 1 - ratio.log()).item()
                clipped += outside
        count = samples.obs.numel()
        parts = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        metrics = self.descend({name: total / count for name, total in parts.items()}, rates)
        return metrics | {"approx_kl": kl / count, "clip_fraction": clipped / count}


def test_targets_equal_those_of_a_plain_learner() -> None:
    config = source_config(gae_lambda=0.7, discount=0.8)
    learners = PPO(config, OTHER_REWARDS, stream_seeds(1, 2), CPU)
    samples = random_rollout(6, 6, 0)
    targets = learners.targets(samples)
    for index in range(2):
        streams = slice(3 * index, 3 * index + 3)
        own = Rollout(*(column[:, streams] for column in samples))
        expected = PlainLearner(config, learners, index).targets(own)
        assert set(targets) == set(expected)
        for name, values in expected.items():
            assert targets[name].shape == (6, 6) and not targets[name].requires_grad
            assert torch.allclose(targets[name][:, streams], torch.tensor(values), atol=1e-5)


@pytest.mark.parametrize("normalize_advantage", [False, True])
@pytest.mark.parametrize("max_gradient_norm", [0.05, 50.0])
def test_updates_equal_those_of_a_plain_learner(*, normalize_advantage: bool, max_gradient_norm: float) -> None:
    """Four updates on the targets of one unroll, so that the policy leaves the one that played; the rates change."""
    config = source_config(
        normalize_advantage=normalize_advantage,
        max_gradient_norm=max_gradient_norm,
        learning_rate=falling(0.06, 0.02),
        value_coefficient=falling(1.0, 0.2),
        entropy_coefficient=falling(0.1, 0.3),
        clip_range=falling(0.1, 0.02),
    )
    learners = PPO(config, OTHER_REWARDS, stream_seeds(1, 2), CPU)
    plain = [PlainLearner(config, learners, index) for index in range(2)]
    samples = random_rollout(5, 6, 1)
    targets = learners.targets(samples)
    for update in range(4):
        learners.set_clock(START._replace(iterations=update))
        learned = learners.update(sample_of(samples, targets=targets))
        assert learned.td_error is None
        rates = (0.06 - 0.01 * update, 1.0 - 0.2 * update, 0.1 + 0.05 * update)
        for index, one in enumerate(plain):
            streams = slice(3 * index, 3 * index + 3)
            own = Rollout(*(column[:, streams] for column in samples))
            expected = one.update(own, {name: v[:, streams] for name, v in targets.items()}, rates, 0.1 - 0.02 * update)
            got = {name: values[index].item() for name, values in learned.metrics.items()}
            assert got == pytest.approx(expected, abs=2e-5)
            assert (expected["clip_fraction"] > 0) == (update > 0)
            one.assert_equal()


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
def test_the_clip_by_hand(ratio: float, advantage: float, loss: float, *, pushes: bool) -> None:
    """clip_range 0.25. Where the clip is at work the actor's gradient is 0."""
    config = source_config(clip_range=0.25, normalize_advantage=False, value_coefficient=0.0, entropy_coefficient=0.0)
    learner = PPO(config, SPEC, stream_seeds(0, 1), CPU)
    learner.set_clock(START)
    played = transition(2, 1, 0, 3, terminated=False, truncated=False)
    now = learner.targets(played)["log_prob"]
    targets = {
        "log_prob": now - torch.tensor(ratio).log(),
        "advantage": torch.tensor([[advantage]]),
        "return": torch.zeros(1, 1),
    }
    metrics = learner.update(sample_of(played, targets=targets)).metrics
    assert metrics["policy_loss"].item() == pytest.approx(loss, rel=1e-4)
    assert (metrics["gradient_norm"].item() > 1e-3) == pushes
    assert metrics["clip_fraction"].item() == (ratio != 1.2)


def test_advantages_are_normalized_for_each_learner() -> None:
    """The policy is the one that played, so the loss is minus the mean advantage: 0 for every learner. Without, it is
    what it is; advantages that are all the same give no gradient, and no division by 0."""
    played = random_rollout(4, 6, 0)
    advantage = torch.tensor([1.0, 1.0, 1.0, -50.0, 0.0, 80.0]).expand(4, 6)
    for normalize_advantage, expected in ((True, [0.0, 0.0]), (False, [-1.0, -10.0])):
        config = source_config(normalize_advantage=normalize_advantage, value_coefficient=0.0, entropy_coefficient=0.0)
        learners = PPO(config, SPEC, stream_seeds(0, 2), CPU)
        learners.set_clock(START)
        targets = learners.targets(played) | {"advantage": advantage}
        metrics = learners.update(sample_of(played, targets=targets)).metrics
        assert metrics["policy_loss"].tolist() == pytest.approx(expected, abs=1e-5)
        assert (metrics["gradient_norm"] > 1e-3).tolist() == [not normalize_advantage, True]


@pytest.mark.parametrize("index", [0, 2, 3])
def test_a_learner_alone_equals_itself_among_others(index: int) -> None:
    one, all_learners = alone_and_among_others(PPO, source_config(learning_rate=0.02), index, 5, 12)
    for ours, theirs in zip(one.network.parameters(), all_learners.network.parameters(), strict=True):
        assert torch.allclose(ours[0], theirs[index], atol=1e-5)


def test_a_restored_learner_goes_on_as_the_saved_one() -> None:
    first, second = (PPO(source_config(), SPEC, stream_seeds(seed, 2), CPU) for seed in (0, 1))
    for learner in (first, second):
        learner.set_clock(START)
    learn_from(first, random_rollout(4, 4, 0))
    second.load_state_dict(copy.deepcopy(first.state_dict()))  # as through a file
    for update in range(1, 4):
        for learner in (first, second):
            learn_from(learner, random_rollout(4, 4, update))
    for ours, theirs in zip(first.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(ours, theirs)
