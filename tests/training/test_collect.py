"""Statistics over the last episodes, against queues that are filled episode by episode; and the loop of stage one."""

import dataclasses
import itertools
from collections import defaultdict, deque

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from src.config import load_config
from src.contracts import Rollout
from src.envs import make_env
from src.envs.rollout import rollout
from src.training.collect import EpisodeStatistics, collect, make_learners

NUM_LEARNERS, NUM_ENVS, WINDOW = 2, 2, 3
CONFIG = load_config(
    ["env.size=4", "env.max_episode_steps=6", "source.num_learners=2", "source.num_envs=2", "source.hidden_size=8"]
)


def life(seed: int, num_steps: int) -> Rollout:
    """Random rewards and ends, `[T, 4]`, with the clocks that belong to them; the clock alone ends at 4 steps."""
    generator = torch.Generator().manual_seed(seed)
    shape = (num_steps, NUM_LEARNERS * NUM_ENVS)
    reward = (torch.rand(shape, generator=generator) < 0.3).long()
    terminated = torch.rand(shape, generator=generator) < 0.2
    timestep = torch.zeros_like(reward)
    for t in range(1, num_steps):
        timestep[t] = torch.where(terminated[t - 1] | (timestep[t - 1] == 3), 0, timestep[t - 1] + 1)
    nothing = torch.zeros_like(reward)
    return Rollout(nothing, nothing, reward, nothing, timestep, terminated, timestep == 3, nothing)


def by_queues(lived: Rollout) -> dict[str, list[float]]:
    """Each stream keeps its last episodes; a learner's number is the mean over all its streams' episodes."""
    last = defaultdict(lambda: deque(maxlen=WINDOW))
    for stream in range(lived.reward.shape[1]):
        total, length = 0, 0
        for t in range(lived.reward.shape[0]):
            total, length = total + int(lived.reward[t, stream]), length + 1
            if lived.terminated[t, stream] or lived.truncated[t, stream]:
                last[stream].append((total, length))
                total, length = 0, 0
    summary = defaultdict(list)
    for learner in range(NUM_LEARNERS):
        episodes = [e for env in range(NUM_ENVS) for e in last[learner * NUM_ENVS + env]]
        for name, value_of in {
            "return": lambda episode: episode[0],
            "success": lambda episode: episode[0] > 0,
            "episode_length": lambda episode: episode[1],
        }.items():
            summary[name].append(np.mean([value_of(e) for e in episodes]) if episodes else np.nan)
    return summary


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 20), min_size=1, max_size=6))
def test_statistics_equal_queues_over_uneven_blocks(seed: int, lengths: list[int]) -> None:
    """Blocks of 1 step, and blocks in which a stream ends more episodes than are kept."""
    lived = life(seed, sum(lengths))
    statistics = EpisodeStatistics(NUM_LEARNERS, NUM_ENVS, WINDOW)
    for block in zip(*(column.split(lengths) for column in lived), strict=True):
        statistics.add(Rollout(*block))
    summary, expected = statistics.summary(), by_queues(lived)
    assert set(summary) == set(expected)
    for name, values in summary.items():
        assert values.tolist() == pytest.approx(expected[name], nan_ok=True)


def test_nothing_is_known_before_an_episode_ends() -> None:
    statistics = EpisodeStatistics(NUM_LEARNERS, NUM_ENVS)
    assert all(np.isnan(values).all() for values in statistics.summary().values())


def test_collect_learns_from_each_rollout_and_goes_on_where_it_stopped() -> None:
    """The loop equals rollouts and updates written out, and learners stand on their own task."""
    env = make_env(CONFIG.env)
    tasks = env.all_tasks()[[3, 12]]
    learner, streams, noise = make_learners(CONFIG, env, tasks, torch.device("cpu"))
    assert streams.state.task[:, 0].tolist() == [3] * 4 + [13] * 4  # the centre, cell 10, is no task
    other, where, other_noise = make_learners(CONFIG, env, tasks, torch.device("cpu"))
    for transitions, metrics, _ in itertools.islice(collect(env, learner, streams, noise, 4), 3):
        expected, where = rollout(other, env, where, 4, other_noise)
        assert all(torch.equal(a, b) for a, b in zip(transitions, expected, strict=True))
        expected_metrics = other.update(expected)
        assert all(torch.equal(metrics[name], value) for name, value in expected_metrics.items())
        assert len(metrics["entropy"]) == 4


def test_learners_do_not_share_their_luck() -> None:
    """Two learners of one task, and a run with another seed, are all different."""
    env = make_env(dataclasses.replace(CONFIG.env, random_start=True))
    lives = []
    for seed in (0, 1):
        config = dataclasses.replace(CONFIG, seed=seed)
        learner, streams, noise = make_learners(config, env, env.all_tasks()[[3]], torch.device("cpu"))
        transitions, _, _ = next(collect(env, learner, streams, noise, 20))
        lives += list(transitions.obs.T)
    for one, other in itertools.combinations(lives, 2):
        assert not torch.equal(one, other)
