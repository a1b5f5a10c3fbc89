"""The covering plan: legal walks, all cells, how near the bound, and what its policy does."""

import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icrl.config.env_schema import DarkRoomConfig
from icrl.envs.dark_room import DarkRoom
from icrl.evaluation.coverage import NUM_EPISODES, coverage_of
from icrl.evaluation.in_context import play_episodes
from icrl.sources.covering_plan import CoveringPlan, cells_covered, coverage_bound, covering_plan
from icrl.sources.room_searchers import Searcher

MOVES = ((0, 0), (-1, 0), (0, 1), (1, 0), (0, -1))


def room(size: int, num_steps: int, terminate: bool = True) -> DarkRoom:
    return DarkRoom(DarkRoomConfig("dark_room", "test", num_steps, size, False, terminate, False))


def walked(plan: np.ndarray, size: int, start: int) -> list[set[int]]:
    """The cells each walk comes by, by plain Python; it must not leave the room, nor go on once it stays."""
    walks: list[set[int]] = []
    for path in plan:
        row, column = divmod(start, size)
        cells: set[int] = set()
        for time_step, action in enumerate(path):
            row, column = row + MOVES[action][0], column + MOVES[action][1]
            assert 0 <= row < size and 0 <= column < size
            assert action != 0 or not path[time_step:].any()
            cells.add(row * size + column)
        walks.append(cells - {start})
    return walks


def test_the_default_room_is_covered_without_a_wasted_step() -> None:
    covering_plan.cache_clear()
    before = time.perf_counter()
    plan = covering_plan(9, 20, 40)
    assert time.perf_counter() - before < 2
    walks = walked(plan, 9, 40)
    assert [len(set().union(*walks[: number + 1])) for number in range(4)] == [20, 40, 60, 80]
    assert plan is covering_plan(9, 20, 40)
    covering_plan.cache_clear()
    np.testing.assert_array_equal(plan, covering_plan(9, 20, 40))


@given(st.integers(2, 8), st.integers(1, 40), st.integers(0, 63))
@settings(max_examples=25, deadline=None)
def test_all_that_can_be_reached_is_covered(size: int, horizon: int, where: int) -> None:
    start = where % size**2
    plan = covering_plan(size, horizon, start)
    walks = walked(plan, size, start)
    reach = {
        cell
        for cell in range(size**2)
        if 0 < abs(cell // size - start // size) + abs(cell % size - start % size) <= horizon
    }
    assert set().union(*walks) == reach
    covered = [len(set().union(*walks[: number + 1])) for number in range(len(walks))]
    assert covered == cells_covered(plan, size, start) == sorted(set(covered))  # each episode adds something
    for number, cells in enumerate(covered, start=1):
        bound = coverage_bound(size, horizon, start, number)
        assert cells <= bound <= min(len(reach), number * horizon)
        assert cells >= 0.85 * bound - 1


@pytest.mark.parametrize(
    ("size", "horizon", "start", "missing"),
    [(5, 10, 12, 0), (7, 20, 24, 0), (8, 20, 0, 0), (9, 13, 40, 0), (11, 20, 60, 0), (13, 40, 84, 0), (13, 20, 84, 1)],
)
def test_how_far_from_the_bound(size: int, horizon: int, start: int, missing: int) -> None:
    covered = cells_covered(covering_plan(size, horizon, start), size, start)
    bounds = [coverage_bound(size, horizon, start, number) for number in range(1, len(covered) + 1)]
    assert max(bound - cells for bound, cells in zip(bounds, covered, strict=True)) <= missing


def test_the_bound_by_hand() -> None:
    """In the corner of a large room 2 cells are next, 5 within two moves, 9 within three."""
    assert [coverage_bound(9, 3, 0, number) for number in range(1, 6)] == [3, 6, 8, 9, 9]
    assert [coverage_bound(3, 50, 4, number) for number in (1, 2)] == [8, 8]


@pytest.mark.parametrize(("size", "num_steps"), [(5, 6), (6, 11), (9, 20)])
def test_it_covers_no_less_than_the_searcher(size: int, num_steps: int) -> None:
    env = room(size, num_steps)
    found = coverage_of({"plan": CoveringPlan(env), "searcher": Searcher(env)}, env, 40, seed=0)
    assert (found["plan"].std(axis=1) == 0).all()
    assert (found["plan"].mean((0, 1)) >= found["searcher"].mean((0, 1)) - 1e-9).all()
    assert len(found["plan"][0, 0]) == NUM_EPISODES


def test_it_finds_every_goal_by_episode_four_and_never_loses_it() -> None:
    env = room(9, 20)
    found, _ = play_episodes(CoveringPlan(env), env, env.all_tasks(), 1, 6, seed=0)
    assert found.success.mean((0, 1)).tolist() == [0.25, 0.5, 0.75, 1, 1, 1]
    goals = env.all_tasks()[:, 0].numpy()
    nearest = abs(goals // 9 - 4) + abs(goals % 9 - 4)
    known = found.success[:, 0].cumsum(1) > found.success[:, 0]  # found in an episode before
    np.testing.assert_array_equal(found.steps_to_goal[:, 0][known], np.broadcast_to(nearest[:, None], (80, 6))[known])


def test_in_the_classic_room_it_stays_on_the_goal() -> None:
    env = room(5, 10, terminate=False)
    found, played = play_episodes(CoveringPlan(env), env, env.all_tasks(), 1, 5, seed=0)
    goals = env.all_tasks()[:, 0]
    nearest = (goals // 5 - 2).abs() + (goals % 5 - 2).abs()
    np.testing.assert_array_equal(found.returns[:, 0, -1], 11 - nearest.numpy())
    rewarded = played.reward.bool()
    assert not ((rewarded[:-1] & ~rewarded[1:]) & ~played.truncated[:-1]).any()


def test_where_nothing_is_found_it_starts_over() -> None:
    env = room(3, 4)
    nowhere = torch.tensor([[9]])
    _, played = play_episodes(CoveringPlan(env), env, nowhere, 1, 6, seed=0)
    actions, paths = played.action[:24, 0].view(6, 4), torch.from_numpy(covering_plan(3, 4, 4))
    assert len(paths) == 2
    assert torch.equal(actions, paths.repeat(3, 1))
