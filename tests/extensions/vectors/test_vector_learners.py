"""Actor-critics over vectors, images and continuous actions: worlds of known value, plain learners, independence,
restoring; and models that learn from trials in such worlds."""

from typing import Any

import numpy as np
import probes
import pytest
import torch
import trial_models
import vector_probes
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from installed import worlds
from probes import learn_from, learn_world, learners_of, sample_of, step_of
from stage_one import check_goes_on
from torch import Tensor, nn
from torch.nn.functional import conv2d
from vector_probes import ARM, COUNTED, ENDLESS, NEAR, SIGN, PlainLearner, VectorProbe, always
from written_out import advantages_and_returns

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.contracts import ConfigError, Rollout
from icrl.envs import make_env
from icrl.envs.rollout import rollout, start_streams
from icrl.extensions.vectors.heads import VectorHeads
from icrl.extensions.vectors.stacked_mlp import RunningMoments
from icrl.randomness import Noise, stream_seeds
from icrl.rl.returns import n_step_returns
from icrl.sources import source_class, source_options
from icrl.sources.collect import SampledOrGreedy
from icrl.sources.heads import heads_of
from icrl.spaces import EnvSpec
from icrl.training.trials import Trials

NUMBERS = torch.tensor([-0.8, 0.0, 0.8])
SHOWS = torch.stack([NUMBERS, torch.zeros(3)], dim=1)  # as observations
FAST = {"discount": 0.5, "learning_rate": 0.02, "entropy_coefficient": 0.0, "hidden_size": 16}


def learned(kind: str, env: Any, *pace: int, **options: Any) -> Any:
    return learn_world(learners_of(kind, 1, env.spec, **FAST | options), env, *pace)


def best_actions(learner: Any, obs: Tensor) -> Tensor:
    return learner.act_in_evaluation(step_of(obs), torch.full((len(obs),), 0.3), 0.0)


@pytest.mark.parametrize("kind", ["a2c", "ppo"])
def test_best_actions_of_probe_worlds(kind: str) -> None:
    """Buttons, a number that depends on the observation, one at a bound, and one whose reward comes a step later."""
    assert best_actions(learned(kind, SIGN, 30), SHOWS[[0, 2]]).tolist() == [0, 1]
    near = learned(kind, NEAR, 80, 3, 64, learning_rate=0.04)
    assert best_actions(near, SHOWS)[:, 0].tolist() == pytest.approx([-0.4, 0.0, 0.4], abs=0.15)
    assert near.network.free.item() < -1  # the deviation shrinks, from a log of 0
    beyond, later = learned(kind, vector_probes.BEYOND, 40), learned(kind, vector_probes.REMEMBERED, 200, 3, 32)
    assert best_actions(beyond, SHOWS[1:2]).item() == pytest.approx(3.0, abs=0.1)
    assert best_actions(later, SHOWS[1:2]).item() == pytest.approx(2.0, abs=0.3)


@pytest.mark.parametrize("kind", ["a2c", *({"a3c"} & source_options().keys())])
def test_values_stay_within_those_that_a_world_can_have(kind: str) -> None:
    """Observations at the time limit are those that no update begins with; values there are guesses, which grew from
    update to update when they were also the unit of the losses. The least value is -1 / (1 - discount) = -100."""
    slow = {"discount": 0.99, "learning_rate": 0.003, "entropy_coefficient": 0.01, "hidden_size": 128}
    learner = learned(kind, vector_probes.WALK, 100, 10, 10, **slow)
    places = torch.stack([torch.zeros(21), torch.arange(-10.0, 11)], dim=1)
    assert learner.heads.value(places[:, None]).abs().max() < 200


# ---- against a plain learner


class Plain(PlainLearner):
    def __init__(self, learners: Any, index: int) -> None:
        super().__init__(learners, index, nn.Tanh)
        self.free = nn.Parameter(learners.network.free[index].detach().clone())
        self.actor, self.critic = self.copied(learners.network.actor), self.copied(learners.network.critic)
        self.trains(self.free, self.actor, self.critic)

    def value(self, obs: Tensor) -> Tensor:
        mean, deviation = self.moments(self.returns)
        return self.critic(self.normalised(obs))[..., 0] * deviation + mean

    def log_prob(self, obs: Tensor, action: Tensor) -> Tensor:
        normal = torch.distributions.Normal(self.actor(self.normalised(obs))[..., 0], self.free.exp()[0, 0])
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
            rates = (self.config.discount, self.config.gae_lambda)
            advantage, _ = advantages_and_returns(steps.reward, value, next_value, *ends, *rates)
            return self.log_prob(steps.obs, steps.action), advantage, advantage + value

    def update(self, steps: Rollout, targets: tuple[Tensor, Tensor, Tensor]) -> None:
        before, advantage, returns = self.targets(steps) if self.config.name == "a2c" else targets
        advantage = advantage / self.moments(self.returns)[1]
        log_prob = self.log_prob(steps.obs, steps.action)
        actor_loss = -log_prob * advantage
        if self.config.name == "ppo":
            ratio = (log_prob - before).exp()
            actor_loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        error = (returns - self.value(steps.obs)) / self.moments(self.returns)[1]
        entropy = torch.distributions.Normal(0.0, self.free.exp()[0, 0]).entropy()
        loss = actor_loss.mean() + self.config.value_coefficient * error.square().mean()
        self.descend(loss - self.config.entropy_coefficient * entropy)
        self.seen.append(steps.obs.flatten(0, 1))
        if self.config.name == "a2c":  # without the values after the last steps
            ends, nothing = (steps.terminated, steps.truncated), torch.zeros_like(steps.reward)
            returns = n_step_returns(steps.reward, nothing, *ends, self.config.discount)
        self.returns.append(returns.flatten()[:, None])


def part_of(steps: Rollout, streams: slice) -> Rollout:
    return Rollout(*(column[:, streams] for column in steps))


@pytest.mark.parametrize("world", [NEAR, COUNTED, ENDLESS])
@pytest.mark.parametrize("max_gradient_norm", [0.05, 50.0])
@pytest.mark.parametrize("kind", ["a2c", "ppo"])
def test_updates_equal_those_of_a_plain_learner(kind: str, max_gradient_norm: float, world: Any) -> None:
    """On actions inside the bounds and at them, with episodes of one step, of several, and truncated ones; PPO learns
    three times from an unroll. Moments change in between."""
    options = {"entropy_coefficient": 0.1, "hidden_size": 6, "max_gradient_norm": max_gradient_norm}
    learners = learners_of(kind, 2, world.spec, **options)
    others = [Plain(learners, index) for index in range(2)]
    where, noise = start_streams(learners, world, torch.zeros(6, 1), stream_seeds(1, 6)), Noise(stream_seeds(2, 6))
    at_bounds = 0
    for _ in range(2):
        steps, where = rollout(learners, world, where, 5, noise)
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
        one.assert_equal(one.actor, learners.network.actor)
        one.assert_equal(one.critic, learners.network.critic)


# ---- alone and among others; from a file


@pytest.mark.parametrize("world", worlds("gymnasium_pendulum", "cart_pole", "point_robot"))
@pytest.mark.parametrize("kind", ["a2c", "a3c", "ppo"])
def test_a_learner_alone_equals_itself_among_others(kind: str, world: str) -> None:
    """Of numbers and of buttons; and of images."""
    probes.check_alone_and_among_others(kind, make_env(load_config([f"env={world}"]).env))
    if (kind, world) == ("a2c", "cart_pole"):
        probes.check_alone_and_among_others(kind, BARS, body="cnn")


@pytest.mark.parametrize("world", worlds("gymnasium_pendulum", "cart_pole"))
def test_a_run_goes_on_from_a_file_as_if_it_had_not_stopped(world: str) -> None:
    """Bit for bit, with mini-batches over several sweeps, and moments that the policy depends on."""
    config = load_config([f"env={world}"])
    sizes = {"num_learners": 2, "num_envs": 2, "unroll_length": 8, "num_env_steps": 128, "history_steps": 128}
    parts = {"num_updates_per_train_iter": 2, "mini_batch_length": 1, "mini_batch_size": 8, "normalize_advantage": True}
    config = probes.changed(config, source=probes.source_options("ppo", **sizes, **parts))
    end = check_goes_on(config, make_env(config.env), 6)
    assert end["learner"]["network"]["observed.count"] == 6 * 4 * 8


# ---- spaces


def test_evaluation_samples_as_often_as_asked() -> None:
    """In a Box: what play would do, or the mean; which of the two does not depend on what play would do."""
    spec = EnvSpec(NEAR.spec.observation_space, Box(-2, 2, (1,)), (), 0, 10)
    learner, obs, noise = learners_of("ppo", 1, spec), torch.zeros(1000, 2), torch.arange(1000) / 1000
    played, _ = learner.act((), step_of(obs), noise)
    mean = learner.act_in_evaluation(step_of(obs), noise, 0.0)
    mixed = learner.act_in_evaluation(step_of(obs), noise, 0.5)
    sampled = mixed != mean
    assert (mean == mean[0]).all() and 400 < sampled.sum() < 600 and torch.equal(mixed[sampled], played[sampled])
    assert abs(mixed[sampled].mean() - played.mean()) < 0.2 * played.std()
    assert torch.equal(learner.act_in_evaluation(step_of(obs), noise, 1.0), played)


@pytest.mark.parametrize(
    ("obs", "action"),
    [
        (Discrete(4), Discrete(3)),
        (Discrete(4), ARM),
        (Box(0, 255, (2, 3, 1), "uint8"), Discrete(3)),
        (MultiDiscrete([3, 4]), MultiDiscrete([3, 2])),
        (Box(-1, 1, (3,)), Box(-2, 2, (2, 3))),
    ],
)
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
    vector = Box(-1, 1, (3,))
    for action, body, message in (
        (MultiDiscrete([[2, 2]]), "mlp", "actions in MultiDiscrete.* have no head: must be Discrete, a MultiDiscrete"),
        (vector_probes.BUTTONS, "cnn", "source.body=cnn reads images"),
    ):
        with pytest.raises(ConfigError, match=message):
            learners_of("a2c", 1, EnvSpec(vector, action, (), 0, 10), body=body)
    told = r"source.name=dqn needs Discrete observations and actions, not Box\(.*Discrete\(3\); source=ppo_vectors"
    with pytest.raises(ConfigError, match=told):
        source_class("dqn").check_spaces("dqn", EnvSpec(vector, Discrete(3), (), 0, 10))


def test_normalised_samples_stay_finite_and_small() -> None:
    """Of a constant column, and far from all others. Mean and deviation are those of a plain learner, see above."""
    moments, samples = RunningMoments(1, 2), torch.randn(1, 300, 2) * torch.tensor([5.0, 0.0]) + 100
    moments.add(samples)
    assert not moments.normalised(samples)[..., 1].any()
    assert moments.normalised(torch.full((1, 1, 2), 1e30)).max() == 10


# ---- images


SIDE, BAR = 8, 3


class Bars(VectorProbe):
    """World of one step: a bar lies anywhere in an image, and the button of its direction pays 1."""

    def __init__(self) -> None:
        rule = lambda x, a: (x, ((x[:, 0] > 0) == (a > 0)).float(), always(x, True))  # noqa: E731
        super().__init__(vector_probes.BUTTONS, rule, varied=True)
        self._start = torch.ones(3)  # direction, row and column
        self.spec = EnvSpec(Box(0, 255, (SIDE, SIDE, 1), np.uint8), vector_probes.BUTTONS, (), 0, 5)

    def observe(self, inner: Tensor) -> Tensor:
        across = inner[:, :1] > 0
        first = ((inner[:, 1:] + 1) / 2 * (SIDE - BAR + 1)).long().clamp(max=SIDE - BAR)  # [B, 2]
        place = torch.arange(SIDE)
        long = (place >= first[..., None]) & (place < first[..., None] + BAR)  # [B, 2, SIDE]
        point = place == first[..., None]
        rows, columns = (torch.where(across, point[:, 0], long[:, 0]), torch.where(across, long[:, 1], point[:, 1]))
        return ((rows[:, :, None] & columns[:, None]).to(torch.uint8) * 200)[..., None]


BARS = Bars()


def test_convolutions_solve_a_world_of_images() -> None:
    options: dict[str, Any] = {"hidden_size": 16, "learning_rate": 0.01, "discount": 0.5, "entropy_coefficient": 0.0}
    learner = learn_world(learners_of("ppo", 1, BARS.spec, body="cnn", **options), BARS, 30, 4, 32)
    streams = start_streams(learner, BARS, torch.zeros(200, 1), stream_seeds(9, 200))
    played, _ = rollout(SampledOrGreedy(learner, 0.0), BARS, streams, 2, Noise(stream_seeds(6, 200)))
    assert played.reward.mean() > 0.95


@pytest.mark.parametrize("shape", [(5, 4, 3), (20, 9, 2)])
def test_rows_equal_those_of_plain_convolutions(shape: tuple[int, ...]) -> None:
    """Learner by learner, for images that are halved and for those that are not."""
    spec = EnvSpec(Box(0, 255, shape, np.uint8), vector_probes.BUTTONS, (), 0, 5)
    learner = learners_of("ppo", 3, spec, body="cnn")
    obs, body = torch.randint(256, (4, 6, *shape), dtype=torch.uint8), learner.network.body
    found = body(obs)
    for k in range(3):
        x = obs[:, 2 * k : 2 * k + 2].flatten(0, 1).movedim(-1, 1) / 255
        for kernel, stride in zip(body.kernels, (1, 1) if shape[0] == 5 else (2, 2, 1), strict=True):
            x = conv2d(x, kernel[k].unflatten(1, (-1, 3, 3)), None, stride, padding=1).relu()
        expected = (x.flatten(1) @ body.linear.weights[0][k]).tanh().unflatten(0, (4, 2))
        torch.testing.assert_close(found[:, 2 * k : 2 * k + 2], expected, rtol=1e-4, atol=1e-5)


# ---- models that learn from trials


def side(x: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Reward 1 if the first number of the action is above 1 where that of the observation is positive, else below."""
    high = action.reshape(len(action), -1)[:, 0] > 1
    return x, (high == (x[:, 0] > 0)).float(), always(x, True)


UP_TO_TWO = Box(0, 2, (1,))


@pytest.mark.parametrize(
    ("space", "head", "pace"),
    [
        (UP_TO_TWO, "gaussian", (150, 0.005)),
        (UP_TO_TWO, "binned", (15, 0.02)),
        (MultiDiscrete([4, 2]), "auto", (15, 0.02)),
    ],
)
def test_trials_teach_any_head_from_vectors_and_rewards_that_are_not_listed(space, head, pace):
    env = VectorProbe(space, side, varied=True)
    options = replace(trial_models.OPTIONS, trial_steps=8, num_streams=32, num_mini_batches=2, bonus=0.0, discount=0.0)
    model, _ = trial_models.learned(env, options, *pace, head=head, num_bins=6)
    played, _ = Trials(options, env, env.all_tasks(), model, seed=1).play(0)
    assert played.reward.mean() > 0.65
