"""Episodes cut out of transitions, against a loop over single steps."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icrl.contracts import EnvSpec, Rollout
from icrl.envs.rollout import Episodes, OpenEpisodes, finished_episodes, numbered

LIMIT = 5
VALUES = (-0.5, 0.0, 2.0)
SUCCESSES = ["reward", "goal", "end", "survival", "best_action"]
# A step: reward (an index into VALUES), whether the task ended there, whether the action was the optimal one.
Play = list[list[tuple[int, bool, bool]]]
Rows = list[tuple[int, float, bool, int, int]]
STEP = st.tuples(st.integers(0, 2), st.booleans() | st.just(False), st.booleans())
STREAMS = st.integers(1, 4).flatmap(
    lambda count: st.lists(st.lists(STEP, min_size=count, max_size=count), min_size=1, max_size=30)
)


def spec_of(success: str) -> EnvSpec:
    return EnvSpec(9, 5, VALUES, 3, LIMIT, success)


def rollout_of(steps: Play) -> Rollout:
    """`[T][B]` steps with clocks that run as an environment's would: LIMIT steps, then a truncation."""
    reward, terminated, best = (torch.tensor([[step[i] for step in row] for row in steps]) for i in range(3))
    timestep = torch.zeros_like(reward)
    for t in range(1, len(steps)):
        ended = terminated[t - 1] | (timestep[t - 1] + 1 == LIMIT)
        timestep[t] = torch.where(ended, 0, timestep[t - 1] + 1)
    nothing, action = torch.zeros_like(reward), torch.full_like(reward, 3)
    truncated, optimal_action = timestep + 1 == LIMIT, torch.where(best, 3, 4)
    return Rollout(nothing, action, reward, nothing, timestep, terminated, truncated, optimal_action)


def step_by_step(steps: Play, success: str) -> Rows:
    """(stream, return, success, length, steps to the success or the length) of each finished episode."""
    found = []
    for stream in range(len(steps[0])):
        total, length, won_at = 0.0, 0, None
        for row in steps:
            reward, terminated, best = row[stream]
            total, length = total + VALUES[reward], length + 1
            last = terminated or length == LIMIT
            won = {
                "reward": VALUES[reward] > 0,
                "goal": VALUES[reward] > 0 and terminated,
                "end": terminated,
                "survival": last and not terminated,
                "best_action": best and last,
            }[success]
            won_at = length if won and won_at is None else won_at
            if last:
                found.append((stream, total, won_at is not None, length, won_at or length))
                total, length, won_at = 0.0, 0, None
    return found


def rows_of(episodes: Episodes) -> Rows:
    return list(zip(*(column.tolist() for column in episodes), strict=True))


@settings(deadline=None, max_examples=60)
@given(STREAMS, st.sets(st.integers(1, 29)), st.sampled_from(SUCCESSES))
def test_equals_steps_one_by_one_wherever_rollouts_are_cut(steps: Play, cuts: set[int], success: str) -> None:
    whole, spec = rollout_of(steps), spec_of(success)
    still_open, found = OpenEpisodes.none(len(steps[0])), []
    edges = [0, *sorted(cut for cut in cuts if cut < len(steps)), len(steps)]
    for start, stop in itertools.pairwise(edges):
        episodes, still_open = finished_episodes(Rollout(*(column[start:stop] for column in whole)), still_open, spec)
        rows = rows_of(episodes)
        assert [row[0] for row in rows] == sorted(row[0] for row in rows)
        found += rows
    # Sorting is stable: within a stream the rows stay in order of time.
    assert sorted(found, key=lambda row: row[0]) == step_by_step(steps, success)


@pytest.mark.parametrize(
    ("success", "first", "second"),
    [
        ("reward", (True, 2), True),
        ("goal", (False, 5), True),
        ("end", (False, 5), True),
        ("best_action", (False, 5), False),
    ],
)
def test_by_hand(success: str, first: tuple[bool, int], second: bool) -> None:
    """Stream 0 is paid twice and cut by the clock; stream 1 ends with a reward, then is still open."""
    no, pays = (1, False, False), (2, False, False)
    steps = [
        [no, (1, False, True)],
        [pays, (2, True, False)],
        [pays, no],
        [no, (0, False, False)],
        [(0, False, False), (2, False, True)],
    ]
    episodes, still_open = finished_episodes(rollout_of(steps), OpenEpisodes.none(2), spec_of(success))
    assert rows_of(episodes) == [(0, 3.5, first[0], 5, first[1]), (1, 2.0, second, 2, 2)]
    assert still_open.returns.tolist() == [0, 1.5]
    assert (still_open.won_at[1] == 3) == (success == "reward")


@given(st.lists(st.integers(0, 3)).map(sorted))
def test_numbers_count_within_each_stream(stream: list[int]) -> None:
    expected = [sum(other == one for other in stream[:i]) for i, one in enumerate(stream)]
    assert numbered(np.array(stream, dtype=np.int64)).tolist() == expected
