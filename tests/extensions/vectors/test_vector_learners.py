"""Actor-critics over vectors and continuous actions: worlds of known value, plain learners, independence, restoring."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from installed import worlds
from probes import (
    changed,
    check_alone_and_among_others,
    learn_from,
    learn_world,
    learners_of,
    restored,
    sample_of,
    source_options,
    step_of,
)
from stage_one import live
from torch import Tensor, nn
from vector_probes import ARM, BEYOND, COUNTED, ENDLESS, NEAR, REMEMBERED, SHOWN, SIGN

from icrl.app.compose import load_config
from icrl.contracts import ConfigError, Rollout
from icrl.envs import make_env
from icrl.envs.rollout import rollout, start_streams
from icrl.extensions.vectors.heads import VectorHeads
from icrl.nn.networks import ADAM_EPS
from icrl.randomness import Noise, stream_seeds
from icrl.rl.returns import gae, n_step_returns
from icrl.sources import source_class
from icrl.sources.heads import heads_of
from icrl.spaces import EnvSpec

every_kind = pytest.mark.parametrize("kind", ["a2c", "a3c", "ppo"])
WORLDS = ("gymnasium_cart_pole", "gymnasium_pendulum", "cart_pole", "pendulum", "point_robot")
every_world = pytest.mark.parametrize("world", worlds(*WORLDS))
NUMBERS = torch.tensor([-0.8, 0.0, 0.8])
SHOWS = torch.stack([NUMBERS, torch.zeros(3)], dim=1)  # as observations
FAST = {"discount": 0.5, "learning_rate": 0.02, "entropy_coefficient": 0.0, "hidden_size": 16}


def learned(kind: str, env: Any, *pace: int) -> Any:
    return learn_world(learners_of(kind, 1, env.spec, **FAST), env, *pace)


def values(learner: Any, obs: Tensor) -> list[float]:
    return learner.heads.value(obs[None])[0].tolist()


def best_actions(learner: Any, obs: Tensor) -> Tensor:
    return learner.act_in_evaluation(step_of(obs), torch.full((len(obs),), 0.3), 0.0)


@pytest.mark.parametrize("kind", ["a2c", "ppo"])
def test_values_of_probe_worlds(kind: str) -> None:
    """A truncated episode bootstraps, a terminated one does not; a value depends on the observation."""
    assert values(learned(kind, ENDLESS, 60), SHOWS[1:2]) == pytest.approx([2.0], abs=0.1)
    stages = torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    assert values(learned(kind, COUNTED, 60), stages) == pytest.approx([1.75, 1.5, 1.0], abs=0.1)
    assert values(learned(kind, SHOWN, 100), SHOWS) == pytest.approx(NUMBERS.tolist(), abs=0.1)


@pytest.mark.parametrize("kind", ["a2c", "ppo"])
def test_best_actions_of_probe_worlds(kind: str) -> None:
    """Buttons, a number that depends on the observation, one at a bound, and one whose reward comes a step later."""
    assert best_actions(learned(kind, SIGN, 60), SHOWS[[0, 2]]).tolist() == [0, 1]
    near = learned(kind, NEAR, 100, 6, 64)
    assert best_actions(near, SHOWS)[:, 0].tolist() == pytest.approx([-0.4, 0.0, 0.4], abs=0.15)
    assert near.network.free.item() < -1  # the deviation shrinks, from a log of 0
    assert best_actions(learned(kind, BEYOND, 60), SHOWS[1:2])[:, 0].tolist() == pytest.approx([3.0], abs=0.1)
    later = learned(kind, REMEMBERED, 200, 3, 64)
    assert best_actions(later, SHOWS[1:2])[:, 0].tolist() == pytest.approx([2.0], abs=0.3)


# ---- against a plain learner


class Plain:
    """Learner `index` by itself: plain layers, PyTorch's distributions, Adam and clip, moments of all it has seen."""

    def __init__(self, learners: Any, index: int) -> None:
        self.config, self.seen = learners.config, list[Tensor]()
        self.returns = list[Tensor]()
        stacked = learners.network
        self.free = nn.Parameter(stacked.free[index].detach().clone())
        self.bodies = [self.body(one, index) for one in (stacked.actor, stacked.critic)]
        self.parameters = [self.free, *(p for body in self.bodies for p in body.parameters())]
        self.optimizer = torch.optim.Adam(self.parameters, eps=ADAM_EPS)

    def body(self, stacked: Any, index: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for weight, bias in zip(stacked.weights, stacked.biases, strict=True):
            linear = nn.Linear(*weight.shape[1:])
            linear.weight.data, linear.bias.data = weight[index].detach().T.clone(), bias[index, 0].detach().clone()
            layers += [linear, nn.Tanh()]
        return nn.Sequential(*layers[:-1])

    def moments(self, seen: list[Tensor]) -> tuple[Any, Any]:
        both = torch.cat(seen) if seen else None
        return (0.0, 1.0) if both is None else (both.mean(0), (both.var(0, correction=0) + 1e-8).sqrt())

    def run(self, body: int, obs: Tensor) -> Tensor:
        mean, deviation = self.moments(self.seen)
        return self.bodies[body]((obs - mean) / deviation)

    def value(self, obs: Tensor) -> Tensor:
        mean, deviation = self.moments(self.returns)
        return self.run(1, obs)[..., 0] * deviation + mean

    def log_prob(self, obs: Tensor, action: Tensor) -> Tensor:
        """Of one number in `ARM`, whose units are 2 wide, from 1."""
        normal = torch.distributions.Normal(self.run(0, obs)[..., 0], self.free.exp()[0, 0])
        number = action[..., 0]
        low, high = normal.cdf(torch.tensor(-1.0)).log(), (1 - normal.cdf(torch.tensor(1.0))).log()
        return torch.where(number == -1, low, torch.where(number == 3, high, normal.log_prob((number - 1) / 2)))

    def targets(self, steps: Rollout) -> tuple[Tensor, Tensor, Tensor]:
        with torch.no_grad():
            value, next_value = self.value(steps.obs), self.value(steps.next_obs)
            ends = (steps.terminated, steps.truncated)
            if self.config.name == "a2c":
                returns = n_step_returns(steps.reward, next_value, *ends, self.config.discount)
                return self.log_prob(steps.obs, steps.action), returns - value, returns
            advantage = gae(steps.reward, value, next_value, *ends, self.config.discount, self.config.gae_lambda)
            return self.log_prob(steps.obs, steps.action), advantage, advantage + value

    def update(self, steps: Rollout, targets: tuple[Tensor, Tensor, Tensor]) -> None:
        before, advantage, returns = self.targets(steps) if self.config.name == "a2c" else targets
        advantage = advantage / self.moments(self.returns)[1]
        log_prob = self.log_prob(steps.obs, steps.action)
        actor_loss = -log_prob * advantage
        if self.config.name == "ppo":
            ratio, clip = (log_prob - before).exp(), self.config.clip_range
            actor_loss = -torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
        error = (returns - self.value(steps.obs)) / self.moments(self.returns)[1]
        entropy = torch.distributions.Normal(0.0, self.free.exp()[0, 0]).entropy()
        loss = actor_loss.mean() + self.config.value_coefficient * error.square().mean()
        self.optimizer.zero_grad()
        (loss - self.config.entropy_coefficient * entropy).backward()
        nn.utils.clip_grad_norm_(self.parameters, self.config.max_gradient_norm)
        self.optimizer.param_groups[0]["lr"] = self.config.learning_rate
        self.optimizer.step()
        self.seen.append(steps.obs.flatten(0, 1))
        self.returns.append(returns.flatten()[:, None])


def part_of(steps: Rollout, streams: slice) -> Rollout:
    return Rollout(*(column[:, streams] for column in steps))


@pytest.mark.parametrize("max_gradient_norm", [0.05, 50.0])
@pytest.mark.parametrize("kind", ["a2c", "ppo"])
def test_updates_equal_those_of_a_plain_learner(kind: str, max_gradient_norm: float) -> None:
    """On actions inside the bounds and at them; PPO learns three times from an unroll. Moments change in between."""
    options = {"entropy_coefficient": 0.1, "hidden_size": 6, "max_gradient_norm": max_gradient_norm}
    learners = learners_of(kind, 2, NEAR.spec, **options)
    others = [Plain(learners, index) for index in range(2)]
    where, noise = start_streams(learners, NEAR, torch.zeros(6, 1), stream_seeds(1, 6)), Noise(stream_seeds(2, 6))
    at_bounds = 0
    for _ in range(2):
        steps, where = rollout(learners, NEAR, where, 5, noise)
        at_bounds += ((steps.action == -1) | (steps.action == 3)).sum().item()
        sample = sample_of(steps, targets=learners.targets(steps))
        mine = [part_of(steps, slice(3 * index, 3 * index + 3)) for index in range(2)]
        targets = [one.targets(own) for one, own in zip(others, mine, strict=True)]
        for _ in range(3):
            learners.update(sample)
            for one, own, known in zip(others, mine, targets, strict=True):
                one.update(own, known)
    assert at_bounds > 5
    for index, one in enumerate(others):
        assert torch.allclose(learners.network.free[index], one.free, atol=1e-5)
        for stacked, body in zip((learners.network.actor, learners.network.critic), one.bodies, strict=True):
            for ours, theirs in zip(stacked.weights, body[::2], strict=True):
                assert torch.allclose(ours[index], theirs.weight.T, atol=1e-5)


# ---- alone and among others; from a file


@every_kind
@every_world
def test_a_learner_alone_equals_itself_among_others(kind: str, world: str) -> None:
    check_alone_and_among_others(kind, world)


@every_world
def test_a_run_goes_on_from_a_file_as_if_it_had_not_stopped(world: str) -> None:
    """Bit for bit, with mini-batches over several sweeps, and moments that the policy depends on."""
    config = load_config([f"env={world}"])
    sizes = {"num_learners": 2, "num_envs": 2, "unroll_length": 8, "num_env_steps": 128, "history_steps": 128}
    parts = {"num_updates_per_train_iter": 2, "mini_batch_length": 1, "mini_batch_size": 8, "normalize_advantage": True}
    config = changed(config, source=source_options("ppo", **sizes, **parts))
    env = make_env(config.env)
    tasks = env.all_tasks()[:2]
    learner, whole, end = live(config, env, tasks, 6)
    _, _, middle = live(config, env, tasks, 3)
    again, rest, end_again = live(config, env, tasks, 6, middle)
    for (ours, _, _), (theirs, _, _) in zip(rest, whole[3:], strict=True):
        assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(ours, theirs, strict=True))
    for name, value in end["learner"]["network"].items():
        assert torch.equal(value, end_again["learner"]["network"][name]), name
    assert learner.network.observed.count == again.network.observed.count == 6 * 4 * 8
    fresh = restored(learner, learners_of("ppo", 4, env.spec))
    step = step_of(env.reset(tasks.repeat_interleave(2, 0), stream_seeds(3, 4))[1].obs)
    for sample_probability in (0.0, 0.5, 1.0):
        noise = torch.linspace(0, 0.99, 4)
        action = fresh.act_in_evaluation(step, noise, sample_probability)
        assert torch.equal(action, learner.act_in_evaluation(step, noise, sample_probability))


# ---- spaces


def test_evaluation_samples_as_often_as_asked() -> None:
    """In a Box: the mean where the noise is not below the probability, else what play would do."""
    learner, obs, noise = learners_of("ppo", 1, NEAR.spec), torch.zeros(8, 2), torch.arange(8) / 8
    played, _ = learner.act((), step_of(obs), noise)
    mean = learner.act_in_evaluation(step_of(obs), noise, 0.0)
    mixed = learner.act_in_evaluation(step_of(obs), noise, 0.5)
    assert torch.equal(mixed[:4], played[:4]) and torch.equal(mixed[4:], mean[4:]) and (mean == mean[0]).all()
    assert not (played == mean).any() and torch.equal(learner.act_in_evaluation(step_of(obs), noise, 1.0), played)


@pytest.mark.parametrize("obs", [Discrete(4), Box(0, 255, (2, 3, 1), "uint8"), MultiDiscrete([3, 4]), Box(-1, 1, (3,))])
@pytest.mark.parametrize("action", [Discrete(3), MultiDiscrete([3, 2]), ARM, Box(-2, 2, (2, 3))])
def test_learners_take_these_spaces(obs: Any, action: Any) -> None:
    spec = EnvSpec(obs, action, (), 0, 10)
    learner, drawn = learners_of("ppo", 2, spec), np.stack([obs.sample() for _ in range(4)])
    rows = torch.as_tensor(drawn).to(spec.obs_dtype)
    acted, _ = learner.act((), step_of(rows), torch.rand(4))
    assert acted.shape == (4, *spec.action_shape) and acted.dtype == spec.action_dtype
    assert all(action.contains(one.numpy() if one.ndim else one.item()) for one in acted)
    assert (heads_of(spec) is VectorHeads) == (not (isinstance(obs, Discrete) and isinstance(action, Discrete)))
    number, no = torch.rand(1, 4), torch.zeros(1, 4, dtype=torch.bool)
    steps = Rollout(rows[None], acted[None], number, rows[None], no.long(), no, no, acted[None])
    assert all(value.isfinite().all() for value in learn_from(learner, steps).metrics.values())


def test_other_spaces_are_refused() -> None:
    pairs = MultiDiscrete([[2, 2]])
    with pytest.raises(
        ConfigError, match=r"actions in MultiDiscrete.* have no head: must be Discrete, a MultiDiscrete"
    ):
        spec = EnvSpec(Box(-1, 1, (3,)), pairs, (), 0, 10)
        source_class("a2c")(source_options("a2c"), spec, torch.zeros(1, dtype=torch.long), torch.device("cpu"))
    told = r"source.name=dqn needs Discrete observations and actions, not Box\(.*Discrete\(3\); source=ppo_vectors"
    with pytest.raises(ConfigError, match=told):
        source_class("dqn").check_spaces("dqn", EnvSpec(Box(-1, 1, (3,)), Discrete(3), (), 0, 10))
