"""Worlds of vectors: streams, tasks, bounds and pictures of all of them, and the point robot by hand."""

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from icrl.app.compose import load_config
from icrl.contracts import ConfigError, Step
from icrl.envs import make_env
from icrl.envs.tasks import split_tasks
from icrl.evaluation.in_context import play_episodes
from icrl.evaluation.references import references_of
from icrl.extensions.maps.render import AGENT, FLOOR, GOALS
from icrl.extensions.vectors.control import CartPole, CartPoleConfig, Pendulum, PendulumConfig
from icrl.extensions.vectors.point_robot import PointRobot, PointRobotConfig
from icrl.extensions.vectors.world import VectorEnv
from icrl.nn.gpt import GPT
from icrl.nn.gpt_policy import GPTPolicy
from icrl.randomness import stream_seeds


def robot(**options: Any) -> PointRobot:
    return PointRobot(PointRobotConfig(**options))


WORLDS: dict[str, VectorEnv] = {
    "dense": robot(max_episode_steps=7),
    "sparse": robot(reward="sparse", max_episode_steps=5),
    "cart pole": CartPole(CartPoleConfig(max_episode_steps=30)),
    "pendulum": Pendulum(PendulumConfig(max_episode_steps=9)),
}


def random_actions(env: VectorEnv, num_steps: int, num_streams: int) -> Tensor:
    space = env.spec.action_space
    space.seed(0)
    drawn = [[space.sample() for _ in range(num_streams)] for _ in range(num_steps)]
    return torch.from_numpy(np.array(drawn))


def played(env: VectorEnv, tasks: Tensor, seeds: Tensor, actions: Tensor) -> list[Step]:
    state, step = env.reset(tasks, seeds)
    steps = [step]
    for action in actions:
        state, step = env.step(state, action)
        steps.append(step)
    return steps


@pytest.mark.parametrize("name", WORLDS)
def test_a_stream_depends_on_its_seed_and_actions_alone(name: str) -> None:
    """Bit for bit, alone and among others at another place of the batch, over many episodes."""
    env, num_streams = WORLDS[name], 11
    tasks, seeds = env.all_tasks()[:num_streams], stream_seeds(3, num_streams)
    actions = random_actions(env, 40, num_streams)
    together = played(env, tasks, seeds, actions)
    assert sum(int((step.terminated | step.truncated).sum()) for step in together) > num_streams
    for stream in (0, 4, 10):
        one = slice(stream, stream + 1)
        alone = played(env, tasks[one], seeds[one], actions[:, one])
        for ours, theirs in zip(alone, together, strict=True):
            assert all(torch.equal(a.nan_to_num(9), b[one].nan_to_num(9)) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", WORLDS)
def test_an_episode_that_ends_restarts_at_once_where_seed_and_number_say(name: str) -> None:
    """Whatever was played: the starts of two streams with one seed are equal, also with other tasks and actions."""
    env = WORLDS[name]
    tasks, seeds = env.all_tasks()[:2], torch.tensor([5, 5])
    steps = played(env, tasks, seeds, random_actions(env, 80, 2))
    starts: list[list[Any]] = [[steps[0].obs[k]] for k in range(2)]
    for before, step in itertools.pairwise(steps):
        over = step.terminated | step.truncated
        assert torch.equal(step.truncated, before.timestep + 1 == env.spec.max_episode_steps)
        assert torch.equal(step.timestep, torch.where(over, 0, before.timestep + 1))
        assert torch.equal(step.obs[~over], step.final_obs[~over])
        for k in over.nonzero()[:, 0].tolist():
            starts[k].append(step.obs[k])
    assert min(map(len, starts)) > 3 and all(torch.equal(a, b) for a, b in zip(*starts, strict=False))
    moving = len({tuple(start.tolist()) for start in starts[0]}) > 1
    assert moving is (not isinstance(env, PointRobot))


@settings(max_examples=30)
@given(
    st.sampled_from(sorted(WORLDS)), st.integers(0, 99), st.lists(st.floats(width=32) | st.just(math.nan), min_size=1)
)
def test_no_step_leaves_its_spaces_or_is_not_a_number(name: str, task: int, numbers: list[float]) -> None:
    """Also for actions that are not: infinite ones are the bounds, NaN is 0."""
    env = WORLDS[name]
    number = torch.tensor(numbers).view(-1, 1, *[1] * len(env.spec.action_shape))
    actions = number.expand(-1, 1, *env.spec.action_shape)
    if env.spec.action_dtype == torch.int64:
        actions = (actions > 0).long()
    for step in played(env, env.all_tasks()[task : task + 1], torch.tensor([task]), actions):
        assert step.reward.isfinite().all()
        for obs in (step.obs, step.final_obs):
            assert env.spec.observation_space.contains(obs[0].numpy())


@pytest.mark.parametrize("name", WORLDS)
def test_tasks_are_drawn_once_and_survive_json(name: str) -> None:
    env = WORLDS[name]
    tasks = env.all_tasks()
    assert tasks.dtype == torch.float32 and tasks.shape == (100, len(env.task_columns))
    assert torch.tensor(json.loads(json.dumps(tasks.tolist()))).equal(tasks)
    assert len(set(env.fingerprint(tasks))) == len({env.label(task) for task in tasks}) == 100
    assert all(name.replace("_", "").replace(".", "").replace("-", "").isalnum() for name in map(env.label, tasks))


# ---- point robot


@pytest.mark.parametrize("reward", ["dense", "sparse"])
def test_moves_and_rewards_by_hand(reward: str) -> None:
    """To a goal at (0.3, 0.4), a triangle of 3, 4 and 5. Actions are clipped to [-1, 1] and scaled by 0.1."""
    actions = torch.tensor([[[0.0, 0.0]], [[0.6, 0.8]], [[2.4, 0.6]], [[1.0, 5.0]], [[0.4, 0.6]]])
    places = [(0, 0), (0.06, 0.08), (0.16, 0.14), (0.26, 0.24), (0.3, 0.3)]
    away = [math.dist(place, (0.3, 0.4)) for place in places]
    expected = [0.0, 0.0, 0.0, 1.0, 1.0] if reward == "sparse" else [-distance for distance in away]
    env = robot(reward=reward, max_episode_steps=5)
    steps = played(env, torch.tensor([[0.3, 0.4]]), torch.tensor([0]), actions)[1:]
    assert [step.reward.item() for step in steps] == pytest.approx(expected, abs=1e-6)
    assert [step.final_obs[0].tolist() for step in steps] == [pytest.approx(place, abs=1e-6) for place in places]
    assert [step.truncated.item() for step in steps] == [False] * 4 + [True]
    assert steps[-1].obs.abs().tolist() == [[0.0, 0.0]] and not any(step.terminated for step in steps)


def test_goals_lie_evenly_on_the_upper_half_of_the_unit_circle() -> None:
    tasks = robot(num_tasks=2000).all_tasks()
    assert tasks.norm(dim=1).allclose(torch.ones(1)) and (tasks[:, 1] >= 0).all()
    angle = torch.atan2(tasks[:, 1], tasks[:, 0])
    assert (angle.sort().values / math.pi - torch.arange(2000) / 2000).abs().max() < 0.05


@pytest.mark.parametrize(("reward", "total", "steps"), [("dense", -4.5, 20), ("sparse", 13.0, 8)])
def test_returns_and_successes_of_the_planner(reward: str, total: float, steps: int) -> None:
    """From (1, 0) ten steps away the rewards are -0.9, -0.8, ..., 0: -4.5 in all. Random play fails."""
    env, task = robot(reward=reward), torch.tensor([[1.0, 0.0]])
    players = references_of(env)
    won, lost = (play_episodes(players[name], env, task, 1, 2, 0)[0] for name in ("optimum", "random"))
    assert won.success.all() and not lost.success.any()
    assert won.returns[0, 0] == pytest.approx([total] * 2, abs=1e-4) and (won.steps_to_goal == steps).all()


def test_tasks_without_a_place_have_no_quadrants() -> None:
    config = load_config(["env=point_robot", "tasks.split=quadrant"])
    with pytest.raises(ConfigError, match="tasks of env.name=point_robot have no place on a map"):
        split_tasks(make_env(config.env), config)
    split = split_tasks(make_env(config.env), load_config(["env=point_robot"]))
    assert (len(split.train), len(split.held_out)) == (80, 20)


@pytest.mark.parametrize(
    ("world", "random", "optimum"), [("point_robot", -20, -3.81), ("cart_pole", 22, None), ("pendulum", -1260, None)]
)
def test_returns_of_random_play_and_of_the_planner_are_those_of_the_docs(
    world: str, random: float, optimum: float | None
) -> None:
    """With the options of the preset, over all tasks: docs/worlds.md."""
    config = load_config([f"env={world}"])
    env = make_env(config.env)
    players = references_of(env)
    assert [*players] == (["random", "optimum"] if optimum else ["random"])
    for name, expected in zip(players, (random, optimum), strict=False):
        found, _ = play_episodes(players[name], env, env.all_tasks(), 2, 1, 1)
        assert found.returns.mean() == pytest.approx(expected, rel=0.05 if name == "random" else 0.002)


# ---- pictures


def test_pictures_show_the_point_its_goal_and_its_path_and_those_of_an_episode_change() -> None:
    env, goal = robot(), torch.tensor([0.0, 1.0])
    obs = torch.tensor([[0.0, 0.0], [-0.1, 0.0], [-0.65, -0.65]])
    frames = env.pictures(goal, 0, 0, obs, torch.zeros(2, 2))
    assert len(frames) == 3 and {frame.shape for frame in frames} == {(240, 240, 3)}
    for frame, (x, y) in zip(frames, obs.tolist(), strict=True):
        row, column = round(120 * (1 - y / env.view)), round(120 * (1 + x / env.view))
        assert tuple(frame[row, column]) == AGENT
        assert tuple(frame[round(120 * (1 - 1 / env.view)), 120]) == GOALS[0]
        assert tuple(frame[230, 230]) == FLOOR
    for env in WORLDS.values():
        actions = random_actions(env, 4, 1)
        steps = played(env, env.all_tasks()[:1], torch.tensor([0]), actions)
        seen = torch.stack([steps[0].obs[0], *(step.final_obs[0] for step in steps[1:])])
        frames = env.pictures(env.all_tasks()[0], 0, 0, seen, actions[:, 0])
        assert len(frames) == 5 and not any(np.array_equal(a, b) for a, b in itertools.pairwise(frames))


def test_models_of_double_precision_act() -> None:
    """Actions have the dtype of the space, whatever the parameters have."""
    config = load_config(["env=point_robot", "model.context_len=20", "model.embed_dim=8", "model.num_layers=1"])
    env = make_env(config.env)
    policy = GPTPolicy(GPT(config.model, env.spec).double(), 1.0, 1.0, 0.5)
    played, steps = play_episodes(policy, env, env.all_tasks()[:2], 2, 1, seed=0)
    assert steps.action.dtype == torch.float32 and np.isfinite(played.returns).all()
