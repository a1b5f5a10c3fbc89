"""A2C, A3C and PPO against one plain PyTorch learner."""

from typing import Any

import pytest
import torch
from probes import OTHER_REWARDS, START, Plain, falling, learners_of, random_rollout, sample_of
from torch import Tensor
from written_out import advantages_and_returns

from icrl import extensions
from icrl.contracts import Rollout, Sample
from icrl.rl.returns import n_step_returns
from icrl.sources import source_options

if "async_unrolls" in extensions.NAMES:
    from icrl.extensions.async_unrolls.a3c import v_trace

RATES = {"learning_rate": falling(0.06, 0.02), "value_coefficient": falling(1.0, 0.2)}
RATES |= {"entropy_coefficient": falling(0.1, 0.3)}
CLIP_RANGE = 0.2


def part_of(sample: Sample, streams: slice) -> Sample:
    rollout = Rollout(*(column[:, streams] for column in sample.rollout))
    return sample_of(rollout, targets={name: column[:, streams] for name, column in sample.targets.items()})


class PlainA2C(Plain):
    def fit(self, sample: Sample) -> tuple[Tensor, Tensor, dict[str, float]]:
        """Loss of the actor, returns of the critic, and metrics."""
        steps, ends = sample.rollout, (sample.rollout.terminated, sample.rollout.truncated)
        next_value = self.value(steps.next_obs).detach()
        returns = n_step_returns(steps.reward, next_value, *ends, self.config.discount)
        advantage = returns - self.value(steps.obs).detach()
        return -(self.policy(steps.obs).log_prob(steps.action) * advantage).mean(), returns, {}

    def update(self, sample: Sample, update: int) -> dict[str, float]:
        """Metrics of an update with the rates of iteration `update`."""
        rates = {"learning_rate": 0.06 - 0.01 * update, "entropy_coefficient": 0.1 + 0.05 * update}
        policy_loss, returns, metrics = self.fit(sample)
        value_loss = (returns - self.value(sample.rollout.obs)).square().mean()
        entropy = self.policy(sample.rollout.obs).entropy().mean()
        loss = policy_loss + (1.0 - 0.2 * update) * value_loss - rates["entropy_coefficient"] * entropy
        metrics |= {"gradient_norm": self.descend(loss, rates["learning_rate"])} | rates
        parts = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        return metrics | {name: value.item() for name, value in parts.items()}


class PlainPPO(PlainA2C):
    @torch.no_grad()
    def targets(self, steps: Rollout) -> dict[str, Tensor]:
        value, ends = self.value(steps.obs), (steps.terminated, steps.truncated)
        rates = self.config.discount, self.config.gae_lambda
        advantage, _ = advantages_and_returns(steps.reward, value, self.value(steps.next_obs), *ends, *rates)
        log_prob = self.policy(steps.obs).log_prob(steps.action)
        return {"log_prob": log_prob, "advantage": advantage, "return": advantage + value}

    def fit(self, sample: Sample) -> tuple[Tensor, Tensor, dict[str, float]]:
        """One transition at a time."""
        advantages, losses, kl, clipped = sample.targets["advantage"], [], [], []
        if self.config.normalize_advantage:
            advantages = (advantages - advantages.mean()) / (advantages.var(correction=0).sqrt() + 1e-8)
        log_probs = self.policy(sample.rollout.obs).log_prob(sample.rollout.action)
        ratios = (log_probs - sample.targets["log_prob"]).exp().flatten()
        for ratio, advantage in zip(ratios, advantages.flatten(), strict=True):
            outside = bool(abs(ratio - 1) > CLIP_RANGE)
            bound = 1 + CLIP_RANGE if ratio > 1 else 1 - CLIP_RANGE
            losses.append(-min(ratio * advantage, bound * advantage) if outside else -ratio * advantage)
            kl.append((ratio - 1 - ratio.log()).item())
            clipped.append(float(outside))
        metrics = {"approx_kl": sum(kl) / len(kl), "clip_fraction": sum(clipped) / len(clipped)}
        return torch.stack(losses).mean(), sample.targets["return"], metrics


class PlainA3C(PlainA2C):
    @torch.no_grad()
    def targets(self, steps: Rollout) -> dict[str, Tensor]:
        return {"log_prob": self.policy(steps.obs).log_prob(steps.action)}

    def fit(self, sample: Sample) -> tuple[Tensor, Tensor, dict[str, float]]:
        steps, config = sample.rollout, self.config
        log_prob = self.policy(steps.obs).log_prob(steps.action)
        with torch.no_grad():
            values, ends = (self.value(steps.obs), self.value(steps.next_obs)), (steps.terminated, steps.truncated)
            ratio = (log_prob - sample.targets["log_prob"]).exp()
            returns, advantage = v_trace(steps.reward, *values, *ends, config.discount, ratio)
        kl, clipped = (ratio - 1 - ratio.log()).mean().item(), (ratio > 1).float().mean().item()
        return -(log_prob * advantage).mean(), returns, {"actor_kl": kl, "clip_fraction": clipped}


PLAIN = {"a2c": PlainA2C, "a3c": PlainA3C, "ppo": PlainPPO}


KINDS = [("a2c", {}), ("a3c", {}), ("ppo", {}), ("ppo", {"normalize_advantage": True})]


@pytest.mark.parametrize("max_gradient_norm", [0.05, 50.0])
@pytest.mark.parametrize(("name", "options"), [one for one in KINDS if one[0] in source_options()])
def test_updates_equal_those_of_a_plain_learner(name: str, options: Any, max_gradient_norm: float) -> None:
    """Metrics and parameters, with the gradient clipped (0.05) and not, while all rates change. All but A2C learn
    four times from the targets of one unroll, so that the policy leaves the one that played. Weights are not read."""
    learners = learners_of(name, 2, OTHER_REWARDS, max_gradient_norm=max_gradient_norm, **RATES, **options)
    others = [PLAIN[name](learners, index) for index in range(2)]
    samples = random_rollout(5, 6, 1)
    targets = learners.targets(samples)
    for one, own in zip(others, (slice(3), slice(3, 6)), strict=True):
        for key, column in targets.items():
            expected = one.targets(part_of(sample_of(samples), own).rollout)[key]
            assert torch.allclose(column[:, own], expected, atol=1e-5) and not column.requires_grad
    if name == "a3c":  # another policy played: rounding decides which ratios are above 1 where all are 1
        targets["log_prob"] += 0.2 * torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    for update in range(4):
        learners.set_clock(START._replace(iterations=update))
        samples = random_rollout(5, 6, update) if name == "a2c" else samples
        sample = sample_of(samples, torch.rand(6), targets)
        learned = learners.update(sample)
        assert learned.td_error is None
        for index, one in enumerate(others):
            expected = one.update(part_of(sample, slice(3 * index, 3 * index + 3)), update)
            got = {name: values[index].item() for name, values in learned.metrics.items()}
            assert got == pytest.approx(expected, abs=2e-5)
            assert (expected["gradient_norm"] > max_gradient_norm) == (max_gradient_norm == 0.05)
            assert name == "a2c" or (expected["clip_fraction"] > 0) == (update > 0 or name == "a3c")
            one.assert_equal("network", one.network)
