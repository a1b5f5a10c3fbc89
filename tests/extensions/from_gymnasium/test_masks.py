"""Worlds that say which actions are legal, or which is the best: flags in observations, policies that take legal
actions alone, and experts."""

import re
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from harness import SMALL, STAGES, done
from installed import needs
from masked_env import LEFT, LENGTH, RIGHT, Corridor, corridor, options_of
from probes import Probe, learn_from, learners_of, step_of
from torch import Tensor
from toy_env import played

import icrl
from icrl import extensions
from icrl.app.compose import load_config
from icrl.contracts import ConfigError, Rollout, Sample
from icrl.data.history_store import open_histories
from icrl.envs import make_env
from icrl.envs.policies import Chance
from icrl.envs.rollout import Streams, rollout, start_streams
from icrl.extensions.from_gymnasium.border import read_expert
from icrl.extensions.from_gymnasium.masks import ActionMask, with_flags
from icrl.randomness import Noise, stream_seeds
from icrl.sources import source_options
from icrl.sources.collect import SampledOrGreedy
from icrl.spaces import EnvSpec

TASKS = [{"goal": goal} for goal in range(LENGTH)]
SOURCES = {"q_learning": {"epsilon": 0.5}, "dqn": {"epsilon": 0.5}}  # options of learners that explore all they can
SOURCES |= {"a2c": {}, "ppo": {}, "a3c": {}} if "vectors" in extensions.NAMES else {}
SOURCES |= {"a2c with a memory": {"body": "gru"}} if "memory" in extensions.NAMES else {}
SOURCES = {name: options for name, options in SOURCES.items() if name.partition(" ")[0] in source_options()}


def legal_by_hand(obs: Tensor, timestep: Tensor) -> Tensor:
    cell = obs[..., 0]
    return torch.stack([cell > 0, cell < LENGTH - 1, timestep % 2 == 1], dim=-1)


def test_spaces_with_flags() -> None:
    assert with_flags(Discrete(4), 2) == MultiDiscrete([4, 2, 2])
    assert with_flags(MultiDiscrete([4, 3]), 2) == MultiDiscrete([4, 3, 2, 2])
    vector = with_flags(Box(-1, 2, (2,)), 3)
    assert vector == Box(np.float32([-1, -1, 0, 0, 0]), np.float32([2, 2, 1, 1, 1]))
    with pytest.raises(ValueError, match="cannot hold flags"):
        with_flags(Box(0, 255, (3, 3, 1), np.uint8), 2)
    for plain in (Discrete(4), MultiDiscrete([4, 3]), Box(-1, 2, (2,))):
        spec = EnvSpec(with_flags(plain, 2), Discrete(2), (), 0, 9, action_mask=True)
        assert spec.plain_space == plain and EnvSpec.of(spec.to_json()) == spec
        row = torch.tensor([[3, 1, 0, 1]])[:, -sum(spec.obs_shape) :]
        assert spec.plain(row).shape == (1, *plain.shape) and spec.legal(row).tolist() == [[False, True]]
    assert "action_mask" not in spec._replace(action_mask=False).to_json()


@pytest.mark.parametrize("vector", [False, True])
def test_observations_end_with_the_flags(vector: bool) -> None:
    """Of the state in which the next action is chosen; an observation that ends an episode without a mask has ones."""
    env = corridor(vector)
    played = played_by(Chance(env.spec), env, 40)[0]
    legal = env.spec.legal(played.obs)
    assert torch.equal(legal, legal_by_hand(played.obs, played.timestep))
    assert env.spec.legal(played.next_obs)[played.terminated].all()
    assert legal.gather(-1, played.action[..., None]).all() and len(played.action.unique()) == 3
    going_on = ~(played.terminated | played.truncated)[:-1]
    assert torch.equal(played.next_obs[:-1][going_on], played.obs[1:][going_on])


def played_by(policy: object, env: object, num_steps: int, per_task: int = 2) -> tuple[Rollout, Streams]:
    tasks = env.all_tasks().repeat_interleave(per_task, 0)
    streams = start_streams(policy, env, tasks, stream_seeds(0, len(tasks)))
    return rollout(policy, env, streams, num_steps, Noise(stream_seeds(1, len(tasks))))


@pytest.mark.parametrize(("name", "vector"), [(name, name == "a3c") for name in SOURCES])
def test_no_source_takes_an_illegal_action(name: str, vector: bool) -> None:
    """The world fails after one. Learners play, learn from it, and play again, in training and in evaluations."""
    kind, env = name.split(maxsplit=1)[0], corridor(vector)
    learner = learners_of(kind, 5, env.spec, **SOURCES[name])
    noise, tasks = Noise(stream_seeds(1, 10)), env.all_tasks().repeat_interleave(2, 0)
    streams = start_streams(learner, env, tasks, stream_seeds(0, 10))
    for _ in range(6):
        before = streams.carry
        unroll, streams = rollout(learner, env, streams, 10, noise)
        learned = learn_from(learner, unroll, before)
        assert all(value.isfinite().all() for value in learned.metrics.values())
    for epsilon in (0.0, 0.5):
        played, _ = played_by(SampledOrGreedy(learner, epsilon), env, 20)
        assert env.spec.legal(played.obs).gather(-1, played.action[..., None]).all()


class Ring(Probe):
    """Tensor world of four places, at each of which the action of its number modulo 3 is not legal; any action leads to
    the next place."""

    def __init__(self) -> None:
        super().__init__(4, 3, 6, lambda s, a: ((s + 1) % 4, (s == 2).long(), s < 0), num_starts=4)
        self.spec = self.spec._replace(observation_space=with_flags(Discrete(4), 3), action_mask=True)

    def observe(self, inner: Tensor) -> Tensor:
        flags = inner[..., None] % 3 != torch.arange(3)
        return torch.cat([inner[..., None], flags.long()], dim=-1)


def test_masks_of_a_tensor_world() -> None:
    env, streams = Ring(), stream_seeds(0, 8)
    learner = Chance(env.spec)
    where = start_streams(learner, env, torch.zeros(8, 1, dtype=torch.long), streams)
    played, _ = rollout(learner, env, where, 30, Noise(streams))
    assert (played.action != played.obs[..., 0] % 3).all() and len(played.action.unique()) == 3
    assert not env.is_exact and torch.equal(env.cell(played.obs, played.action), played.obs[..., 0])


@needs("value_sources")
@pytest.mark.parametrize("name", ["q_learning", "dqn"])
def test_action_values_of_the_next_step_are_those_of_legal_actions(name: str) -> None:
    """By hand: the best action of cell 1 is worth 5 and illegal there, so the target is 0.9 times the 2 of another."""
    spec = EnvSpec(with_flags(Discrete(3), 2), Discrete(2), (0.0, 1.0), 0, 9, action_mask=True)
    zero, no = torch.zeros(1, 1), torch.zeros(1, 1, dtype=torch.bool)
    obs, next_obs = torch.tensor([[[0, 1, 1]]]), torch.tensor([[[1, 0, 1]]])
    step = Rollout(obs, zero.long(), zero, next_obs, zero.long(), no, no, zero.long())
    learner = learners_of(name, 1, spec, discount=0.9, learning_rate=1.0)
    for values in (learner._values, getattr(learner, "_target_values", learner._values)):
        values[1] = torch.tensor([5.0, 2.0])
    assert learner.update(Sample(step, torch.ones(1), {})).td_error.tolist() == pytest.approx([1.8])
    assert learner.action_probabilities(step_of(next_obs[0])).tolist() == [[0.0, 1.0]]  # however much is explored


@needs("memory")
def test_all_stages(tmp_path) -> None:
    """The world fails after an illegal action, and none is recorded; an imported one is refused."""
    world = options_of(TASKS)
    options = ("source=a2c", "source.body=gru", "source.unroll_length=5", "source.videos_per_task=0")
    options += ("source.num_env_steps=60", "source.history_steps=60", "evaluation.num_episodes=2")
    options += ("tasks.num_train=3", "data.min_final_success=0", "trainer.evaluate=false", "evaluation.videos=false")
    for stage in STAGES:
        done(stage, tmp_path, *world, *options, preset=SMALL)
    store = open_histories(tmp_path / "histories/small")
    obs, action = (torch.from_numpy(np.array(store.columns[name])).long() for name in ("obs", "action"))
    assert store.columns["obs"].dtype == np.uint8 and store.spec.action_mask
    assert store.spec.legal(obs).gather(-1, action[..., None]).all()
    world = ActionMask(gymnasium.wrappers.TimeLimit(Corridor(2), 8))
    assert icrl.rollout(icrl.load(tmp_path / "logs/small"), world, 3).shape == (1, 3)


def test_actions_without_a_mask_are_refused() -> None:
    env = Corridor(0)
    env.action_space = Box(-1, 1, (1,))
    with pytest.raises(ValueError, match="have no mask: must be Discrete"):
        ActionMask(env)


# ---- actions that environments call the best, and shortest ways in levels of cells

GUIDED = (*options_of(TASKS, "Guided"), "env.expert=info")


def test_the_best_action_is_what_the_environment_says() -> None:
    """In this process and in workers, after resets and steps; whoever follows it goes straight."""
    config: Any = load_config(GUIDED).env
    tasks, goals = torch.arange(5)[:, None], torch.arange(5)
    with closing(make_env(config)) as env, closing(played(config, 1)) as processes:
        assert env.has_planner and not env.is_exact
        (state, step), (other_state, other) = (world.reset(tasks, stream_seeds(0, 5)) for world in (env, processes))
        for _ in range(30):
            cell = step.obs[:, 0]
            assert torch.equal(step.optimal_action, torch.where(goals > cell, RIGHT, LEFT))
            assert all(torch.equal(*pair) for pair in zip(step, other, strict=True))
            distance = (goals - cell).abs()
            state, step = env.step(state, step.optimal_action)
            other_state, other = processes.step(other_state, other.optimal_action)
            assert torch.equal(step.reward, (distance == 1).float())


@pytest.mark.parametrize(
    ("kind", "wrong", "expert", "named"),
    [
        ("Bare", {}, "none", "info['action_mask'] is missing: must be 3 flags"),
        ("Corridor", {"mask": "[0, 0, 0]"}, "none", "is [0 0 0]: must be 3 flags"),
        ("Guided", {"told": 3}, "info", "is 3: must be an action"),
        ("Guided", {"told": 2}, "info", "is 2, which info['action_mask'] forbids"),
        ("Corridor", {}, "nobody", "env.expert: there is no nobody: must be none, info, or module:Class"),
        ("Corridor", {}, "info", "info['expert_action'] is missing"),
    ],
)
def test_wrong_masks_and_experts_are_refused_before_any_work(kind: str, wrong: Any, expert: str, named: str) -> None:
    tasks = [{"goal": 0}, {"goal": 1, **wrong}, {"goal": 2}]
    with pytest.raises(ConfigError, match=(r"env.tasks\[1\].*" if wrong else "") + re.escape(named)):
        make_env(load_config((*options_of(tasks, kind), f"env.expert={expert}")).env)


def test_actions_of_every_space() -> None:
    spaces = [
        (Discrete(3), 2, 2),
        (MultiDiscrete([2, 3]), [1, 2], [1, 2]),
        (Box(-1, 2, (2,)), [9.0, -9.0], [2.0, -1.0]),
    ]
    for space, told, expected in spaces:
        spec = EnvSpec(Discrete(2), space, (), 0, 5)
        assert np.array_equal(read_expert({"expert_action": told}, spec, 0), expected)
        for wrong in (np.nan, [0, 1, 2], None):
            with pytest.raises(ValueError, match="must be an action in"):
                read_expert({"expert_action": wrong}, spec, 0)
