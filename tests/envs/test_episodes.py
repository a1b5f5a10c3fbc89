"""Episodes cut out of transitions, against a loop over single steps."""

import itertools

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icrl.contracts import EnvSpec, Rollout
from icrl.envs.episodes import Episodes, OpenEpisodes, finished_episodes, numbered

LIMIT = 5
VALUES = (-0.5, 0.0, 2.0)
SUCCESSES = ["reward", "goal", "end", "best_action"]
# A step: reward (an index into VALUES), whether the task ended there, whether the action was the optimal one.
Play = list[list[tuple[int, bool, bool]]]
STEP = st.tuples(st.integers(0, 2), st.booleans() | st.just(False), st.booleans())
STREAMS = st.integers(1, 4).flatmap(
    lambda count: st.lists(st.lists(STEP, min_size=count, max_size=count), min_size=1, max_size=30)
)


def spec_of(success: str) -> EnvSpec:
    return EnvSpec(9, 5, VALUES, 3, LIMIT, success)


def rollout_of(steps: Play) -> Rollout:
    """`[T][B]` steps with clocks that run as an environment's would: LIMIT steps, then a truncation."""
    reward = torch.tensor([[step[0] for step in row] for row in steps])
    terminated = torch.tensor([[step[1] for step in row] for row in steps])
    best = torch.tensor([[step[2] for step in row] for row in steps])
    timestep = torch.zeros_like(reward)
    for t in range(1, len(steps)):
        ended = terminated[t - 1] | (timestep[t - 1] + 1 == LIMIT)
        timestep[t] = torch.where(ended, 0, timestep[t - 1] + 1)
    nothing = torch.zeros_like(reward)
    action = torch.full_like(reward, 3)
    optimal_action = torch.where(best, 3, 4)
    return Rollout(nothing, action, reward, nothing, timestep, terminated, timestep + 1 == LIMIT, optimal_action)


def step_by_step(steps: Play, success: str) -> list[tuple[int, float, bool, int, int]]:
    """(stream, return, success, length, steps to the success or the length) of each finished episode."""
    found = []
    for stream in range(len(steps[0])):
        total, length, won_at = 0.0, 0, None
        for row in steps:
            reward, terminated, best = row[stream]
            total, length = total + VALUES[reward], length + 1
            positive = VALUES[reward] > 0
            last = terminated or length == LIMIT
            won = {
                "reward": positive,
                "goal": positive and terminated,
                "end": terminated,
                "best_action": best and last,
            }[success]
            if won and won_at is None:
                won_at = length
            if last:
                found.append((stream, total, won_at is not None, length, length if won_at is None else won_at))
                total, length, won_at = 0.0, 0, None
    return found


def rows_of(episodes: Episodes) -> list[tuple[int, float, bool, int, int]]:
    return list(zip(*(column.tolist() for column in episodes), strict=True))


@settings(deadline=None)
@given(STREAMS, st.sets(st.integers(1, 29)), st.sampled_from(SUCCESSES))
def test_equals_steps_one_by_one_wherever_blocks_are_cut(steps: Play, cuts: set[int], success: str) -> None:
    whole, spec = rollout_of(steps), spec_of(success)
    expected = step_by_step(steps, success)
    still_open, found = OpenEpisodes.none(len(steps[0])), []
    edges = [0, *sorted(cut for cut in cuts if cut < len(steps)), len(steps)]
    for start, stop in itertools.pairwise(edges):
        episodes, still_open = finished_episodes(Rollout(*(column[start:stop] for column in whole)), still_open, spec)
        rows = rows_of(episodes)
        assert [row[0] for row in rows] == sorted(row[0] for row in rows)
        found += rows
    assert sorted(found, key=lambda row: row[0]) == expected  # stable: within a stream in order of time


def test_by_hand() -> None:
    """Stream 0 is paid twice and cut by the clock; stream 1 ends with a reward, then is still open. Neither's best
    action is its last."""
    steps = [
        [(1, False, False), (1, False, True)],
        [(2, False, False), (2, True, False)],
        [(1, False, True), (1, False, False)],
        [(2, False, False), (0, False, False)],
        [(0, False, False), (2, False, True)],
    ]
    expected = {
        "reward": [(0, 3.5, True, 5, 2), (1, 2.0, True, 2, 2)],
        "goal": [(0, 3.5, False, 5, 5), (1, 2.0, True, 2, 2)],
        "end": [(0, 3.5, False, 5, 5), (1, 2.0, True, 2, 2)],
        "best_action": [(0, 3.5, False, 5, 5), (1, 2.0, False, 2, 2)],
    }
    for success, episodes_of_it in expected.items():
        episodes, still_open = finished_episodes(rollout_of(steps), OpenEpisodes.none(2), spec_of(success))
        assert rows_of(episodes) == episodes_of_it
        assert still_open.returns.tolist() == [0, 1.5]
        assert (still_open.won_at[1] == 3) == (success == "reward")


def test_a_losing_end_is_an_end_but_no_goal() -> None:
    won = {
        success: finished_episodes(rollout_of([[(0, True, False)]]), OpenEpisodes.none(1), spec_of(success))[0].success
        for success in SUCCESSES
    }
    assert [bool(won[success]) for success in SUCCESSES] == [False, False, True, False]


@given(st.lists(st.integers(0, 3)).map(sorted))
def test_numbers_count_within_each_stream(stream: list[int]) -> None:
    expected = [sum(other == one for other in stream[:i]) for i, one in enumerate(stream)]
    assert numbered(np.array(stream, dtype=np.int64)).tolist() == expected
