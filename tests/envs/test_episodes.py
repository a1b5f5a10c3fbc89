"""Episodes cut out of transitions, against a loop over single steps."""

import itertools

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from src.contracts import Rollout
from src.envs.episodes import Episodes, OpenEpisodes, finished_episodes, numbered

LIMIT = 5
# A step: reward, and whether the task ended there. Rewards without an end are the classic variant's.
STEP = st.tuples(st.integers(0, 1), st.booleans() | st.just(False))
STREAMS = st.integers(1, 4).flatmap(
    lambda count: st.lists(st.lists(STEP, min_size=count, max_size=count), min_size=1, max_size=30)
)


def rollout_of(steps: list[list[tuple[int, bool]]]) -> Rollout:
    """`[T][B]` steps with clocks that run as an environment's would: LIMIT steps, then a truncation."""
    reward = torch.tensor([[step[0] for step in row] for row in steps])
    terminated = torch.tensor([[step[1] for step in row] for row in steps])
    timestep = torch.zeros_like(reward)
    for t in range(1, len(steps)):
        ended = terminated[t - 1] | (timestep[t - 1] + 1 == LIMIT)
        timestep[t] = torch.where(ended, 0, timestep[t - 1] + 1)
    nothing = torch.zeros_like(reward)
    return Rollout(nothing, nothing, reward, nothing, timestep, terminated, timestep + 1 == LIMIT, nothing)


def step_by_step(steps: list[list[tuple[int, bool]]]) -> list[tuple[int, int, int, int]]:
    """(stream, return, length, steps to the first reward or the length) of each finished episode."""
    found = []
    for stream in range(len(steps[0])):
        total, length, first = 0, 0, None
        for row in steps:
            reward, terminated = row[stream]
            total, length = total + reward, length + 1
            if reward and first is None:
                first = length
            if terminated or length == LIMIT:
                found.append((stream, total, length, length if first is None else first))
                total, length, first = 0, 0, None
    return found


def rows_of(episodes: Episodes) -> list[tuple[int, int, int, int]]:
    return list(zip(*(column.tolist() for column in episodes), strict=True))


@settings(deadline=None)
@given(STREAMS, st.sets(st.integers(1, 29)))
def test_equals_steps_one_by_one_wherever_blocks_are_cut(steps: list[list[tuple[int, bool]]], cuts: set[int]) -> None:
    whole = rollout_of(steps)
    expected = step_by_step(steps)
    still_open, found = OpenEpisodes.none(len(steps[0])), []
    edges = [0, *sorted(cut for cut in cuts if cut < len(steps)), len(steps)]
    for start, stop in itertools.pairwise(edges):
        episodes, still_open = finished_episodes(Rollout(*(column[start:stop] for column in whole)), still_open)
        rows = rows_of(episodes)
        assert [row[0] for row in rows] == sorted(row[0] for row in rows)
        found += rows
    assert sorted(found, key=lambda row: row[0]) == expected  # stable: within a stream in order of time


def test_by_hand() -> None:
    """Stream 0 wins twice on the goal and is cut by the clock; stream 1 terminates, then is still open."""
    steps = [
        [(0, False), (0, False)],
        [(1, False), (1, True)],
        [(0, False), (0, False)],
        [(1, False), (0, False)],
        [(0, False), (1, False)],
    ]
    episodes, still_open = finished_episodes(rollout_of(steps), OpenEpisodes.none(2))
    assert rows_of(episodes) == [(0, 2, 5, 2), (1, 1, 2, 2)]
    assert still_open.returns.tolist() == [0, 1]
    assert still_open.first_reward[1] == 3


@given(st.lists(st.integers(0, 3)).map(sorted))
def test_numbers_count_within_each_stream(stream: list[int]) -> None:
    expected = [sum(other == one for other in stream[:i]) for i, one in enumerate(stream)]
    assert numbered(np.array(stream, dtype=np.int64)).tolist() == expected
