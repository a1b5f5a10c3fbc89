"""Soft actor-critics: worlds of known value, a plain learner, independence, restoring, spaces."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from installed import worlds
from probes import changed, check_alone_and_among_others, learners_of, sample_of, source_options, step_of
from stage_one import check_goes_on
from torch import Tensor, nn
from torch.distributions import Normal, TanhTransform, TransformedDistribution
from vector_probes import BEYOND, COUNTED, ENDLESS, NEAR, REMEMBERED, PlainLearner

from icrl.app.compose import load_config
from icrl.contracts import ConfigError, Rollout
from icrl.envs import make_env
from icrl.envs.rollout import rollout, start_streams
from icrl.extensions.sac import sac
from icrl.randomness import Noise, stream_seeds
from icrl.sources import source_class
from icrl.spaces import EnvSpec

WORLDS = worlds("gymnasium_pendulum", "pendulum", "point_robot")
SHOWS = torch.tensor([[-0.8, 0.0], [0.0, 0.0], [0.8, 0.0]])
FAST = {"discount": 0.5, "learning_rate": 0.02, "hidden_size": 32, "target_update_rate": 0.1}


def learned(env: Any, updates: int, temperature: float = 0.03, **changes: Any) -> Any:
    """A learner of random play alone, with its first temperature: 20 steps in eight environments."""
    one = learners_of("sac", 1, env.spec, **FAST | changes)
    torch.nn.init.constant_(one.network.log_temperature, math.log(temperature))
    where = start_streams(one, env, torch.zeros(8, 1), stream_seeds(1, 8))
    steps, _ = rollout(one, env, where, 20, Noise(stream_seeds(2, 8)))
    for _ in range(updates):
        one.update(sample_of(steps))
    return one


def test_best_actions_of_probe_worlds() -> None:
    """A number that depends on the observation, one at a bound, and one whose reward comes a step later."""

    def best_actions(env: Any, updates: int) -> list[float]:
        one = learned(env, updates, learning_rate=0.03)
        return one.act_in_evaluation(step_of(SHOWS), torch.full((3,), 0.3), 0.0)[:, 0].tolist()

    assert best_actions(NEAR, 170) == pytest.approx([-0.4, 0.0, 0.4], abs=0.2)
    assert best_actions(BEYOND, 50)[1] > 2.6
    assert best_actions(REMEMBERED, 160)[1] == pytest.approx(2.0, abs=0.3)


@pytest.mark.parametrize(("target", "updates"), [(-2.0, 300), (-0.5, 200)])
def test_the_temperature_brings_the_entropy_to_its_target(
    target: float, updates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sac, "TARGET_ENTROPY", target)
    one = learned(NEAR, updates)
    obs = torch.stack([torch.linspace(-1, 1, 500), torch.zeros(500)], 1)
    _, log_prob = one.heads.policy.draw_in_units(one.network.actor(one.heads.inputs(obs[None])), one._noise(500))
    assert -log_prob.mean().item() == pytest.approx(target, abs=0.4)
    before = math.log(0.03)
    assert (one.network.log_temperature.item() < before) == (target < -1)


# ---- against a plain learner


class Plain(PlainLearner):
    def __init__(self, learners: Any, index: int) -> None:
        super().__init__(learners, index, nn.ReLU)
        network = learners.network
        self.actor, self.critics = self.copied(network.actor), [self.copied(network.critics, n) for n in range(2)]
        self.targets = copy.deepcopy(self.critics)
        self.log_temperature = nn.Parameter(network.log_temperature[index, 0, 0].detach().clone())
        self.trains(self.log_temperature, self.actor, *self.critics)

    def drawn(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        mean, free = self.actor(self.normalised(obs)).unbind(-1)
        normal = Normal(mean, (4 * free.tanh()).exp())
        squashed = TransformedDistribution(normal, [TanhTransform(cache_size=1)])
        action = squashed.transforms[0](mean + normal.stddev * noise)
        return action[:, None], squashed.log_prob(action)

    def least(self, critics: list[nn.Sequential], obs: Tensor, action: Tensor) -> Tensor:
        inputs = torch.cat([self.normalised(obs), action], -1)
        return torch.minimum(*(critic(inputs)[:, 0] for critic in critics))

    def update(self, steps: Rollout, weight: Tensor, noise: Tensor) -> Tensor:
        config, temperature = self.config, self.log_temperature.exp().detach()
        mean, deviation = self.moments(self.returns)
        with torch.no_grad():
            next_action, log_prob = self.drawn(steps.next_obs, noise)
            soft = self.least(self.targets, steps.next_obs, next_action) - temperature * log_prob
            fitted = steps.reward + config.discount * torch.where(steps.terminated, 0.0, mean + deviation * soft)
        inputs = torch.cat([self.normalised(steps.obs), (steps.action - 1) / 2], -1)
        errors = [critic(inputs)[:, 0] - (fitted - mean) / deviation for critic in self.critics]
        action, log_prob = self.drawn(steps.obs, noise)
        critic_loss = (weight * (errors[0] ** 2 + errors[1] ** 2) / 2).mean()
        fixed = copy.deepcopy(self.critics)  # so that the actor's loss leaves the critics alone
        actor_loss = (weight * (temperature * log_prob - self.least(fixed, steps.obs, action))).mean()
        of_temperature = -self.log_temperature * (weight * (log_prob.detach() + sac.TARGET_ENTROPY)).mean()
        self.descend(critic_loss + actor_loss + of_temperature)
        for target, critic in zip(self.targets, self.critics, strict=True):
            for slow, fast in zip(target.parameters(), critic.parameters(), strict=True):
                slow.data += config.target_update_rate * (fast.data - slow.data)
        self.seen.append(steps.obs)
        self.returns.append(fitted)
        self.metrics = {"value_loss": critic_loss, "policy_loss": actor_loss, "temperature": temperature}
        self.metrics |= {"value": fitted.mean(), "entropy": -(weight * log_prob).sum() / weight.sum()}
        return (errors[0].abs() + errors[1].abs()).detach() / 2


@pytest.mark.parametrize("world", [NEAR, COUNTED, ENDLESS])
@pytest.mark.parametrize("max_gradient_norm", [0.5, 50.0])
def test_updates_equal_those_of_a_plain_learner(world: Any, max_gradient_norm: float) -> None:
    """Episodes end or are cut off. Weights of windows do not move the target of the entropy, and moments change between
    the updates."""
    options = {"hidden_size": 6, "max_gradient_norm": max_gradient_norm, "target_update_rate": 0.2}
    learners = learners_of("sac", 2, world.spec, **options)
    others = [Plain(learners, index) for index in range(2)]
    assert not torch.equal(*(critic[0].weight for critic in others[0].critics))
    where, noise = start_streams(learners, world, torch.zeros(6, 1), stream_seeds(1, 6)), Noise(stream_seeds(2, 6))
    for _ in range(5):
        steps, where = rollout(learners, world, where, 4, noise)
        weight = torch.tensor([[1.0, 0.5, 2.0], [0.25, 3.0, 1.0]])
        drawn = learners._noise(12)[..., 0]  # [L, 12], by steps and windows
        metrics, td_error = learners.update(sample_of(steps, weight.flatten()))
        assert not torch.equal(*drawn) and not torch.equal(learners._noise(12)[..., 0], drawn)
        for index, one in enumerate(others):
            mine = Rollout(*(column[:, 3 * index : 3 * index + 3].flatten(0, 1) for column in steps))
            expected = one.update(mine, weight[index].repeat(4), drawn[index]).view(4, 3).mean(0)
            torch.testing.assert_close(td_error[3 * index : 3 * index + 3], expected, rtol=1e-3, atol=1e-4)
            found = {name: metrics[name][index].item() for name in one.metrics}
            assert found == pytest.approx({name: number.item() for name, number in one.metrics.items()}, 1e-3, 1e-4)
    for index, one in enumerate(others):
        one.assert_equal(one.actor, learners.network.actor)
        for which in range(2):
            one.assert_equal(one.critics[which], learners.network.critics, which)
            one.assert_equal(one.targets[which], learners.target, which)
        assert torch.allclose(learners.network.log_temperature[index, 0, 0], one.log_temperature, atol=1e-5)


# ---- alone and among others; from a file


@pytest.mark.parametrize("world", WORLDS[1:])
def test_a_learner_alone_equals_itself_among_others(world: str) -> None:
    check_alone_and_among_others("sac", make_env(load_config([f"env={world}"]).env))


@pytest.mark.parametrize(("world", "priority"), [(world, k > 0) for k, world in enumerate(WORLDS[:2])])
def test_a_run_goes_on_from_a_file_as_if_it_had_not_stopped(world: str, priority: bool) -> None:
    """Bit for bit, with the replay, targets, temperatures and the noise of updates."""
    config = load_config([f"env={world}"])
    sizes = {"num_learners": 2, "num_envs": 2, "unroll_length": 4, "num_env_steps": 128, "history_steps": 128}
    parts = {"initial_collect_steps": 16, "mini_batch_size": 8, "num_updates_per_train_iter": 3}
    config = changed(config, source=source_options("sac", **sizes, **parts, priority_replay=priority))
    end = check_goes_on(config, make_env(config.env), 8)
    assert end["learner"]["updates"] == 7 * 3  # none in the first iteration, which collects 8 of 16 steps


# ---- spaces


def test_actions_lie_in_the_box_and_are_uniform_before_the_first_update() -> None:
    space = Box(np.array([-1.0, 5.0], np.float32), np.array([3.0, 5.5], np.float32))
    learners = learners_of("sac", 1, EnvSpec(Discrete(3), space, (), 0, 10))
    step, noise = step_of(torch.zeros(4000, dtype=torch.long)), (torch.arange(4000) + 0.5) / 4000
    played = learners.act((), step, noise)[0]
    for number, (low, high) in zip(played.T, ((-1, 3), (5, 5.5)), strict=True):
        assert (torch.histc(number, 4, low, high) / 4000).tolist() == pytest.approx([0.25] * 4, abs=0.03)
    learners.updates = 1
    drawn = learners.act((), step, noise)[0]
    assert not torch.equal(drawn, played) and all(space.contains(one.numpy()) for one in drawn)


def test_other_spaces_are_refused() -> None:
    told = r"source.name=sac needs continuous actions in a Box, not Discrete\(3\); sou"
    flat = Box(np.array([-1.0, 2.0], np.float32), np.array([1.0, 2.0], np.float32))
    for space, why in ((Discrete(3), told), (Box(-9, np.inf, (2,)), "have no bounds"), (flat, "bounds that differ")):
        with pytest.raises(ConfigError, match=why):
            source_class("sac").check_spaces("sac", EnvSpec(Box(-1, 1, (3,)), space, (), 0, 10))
