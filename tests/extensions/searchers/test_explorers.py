"""The covering plan and the walks: legal paths, all cells, distance to the bound, shortest paths to a known goal."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import room, scalar_move

from icrl.envs.rooms import next_cells
from icrl.evaluation.in_context import play_episodes
from icrl.extensions.searchers.explorers import (
    CoveringPlan,
    PersistentWalk,
    TurningWalk,
    UniformWalk,
    cells_covered,
    cells_walked,
    coverage_bound,
    covering_plan,
)
from icrl.randomness import Noise

pytestmark = pytest.mark.quick


def walked(plan: np.ndarray, size: int, start: int) -> list[int]:
    """Cells beside `start` covered by the end of each walk, by plain Python; a walk must not run into a wall, nor go on
    once it stays."""
    cells, covered = {start}, []
    for path in plan.tolist():
        cell = start
        for place, action in enumerate(path):
            assert scalar_move(size, cell, action) != cell if action else not any(path[place:])
            cell = scalar_move(size, cell, action)
            cells.add(cell)
        covered.append(len(cells) - 1)
    return covered


@given(st.integers(2, 7), st.integers(1, 30), st.integers(0, 48))
@settings(max_examples=10)
def test_all_cells_within_reach_are_covered(size: int, horizon: int, where: int) -> None:
    start = where % size**2
    plan = covering_plan(size, horizon, start)
    covered = walked(plan, size, start)
    distance = [abs(c // size - start // size) + abs(c % size - start % size) for c in range(size**2)]
    reach = sum(0 < steps <= horizon for steps in distance)
    assert covered == sorted(set(covered))  # each episode adds something
    assert covered[-1] == reach and covered == cells_covered(plan, size, start)
    for number, cells in enumerate(covered, start=1):
        bound = coverage_bound(size, horizon, start, number)
        assert 0.85 * bound - 1 <= cells <= bound <= min(reach, number * horizon)


def test_the_bound() -> None:
    """Plans are near it. By hand: in the corner of a large room 2 cells are next, 5 within 2 moves, 9 within 3."""
    rooms = ((9, 20, 40, 0), (5, 10, 12, 0), (8, 20, 0, 0), (9, 13, 40, 0))
    for size, horizon, start, missing in rooms:
        covered = cells_covered(covering_plan(size, horizon, start), size, start)
        bounds = [coverage_bound(size, horizon, start, number) for number in range(1, len(covered) + 1)]
        assert max(bound - cells for bound, cells in zip(bounds, covered, strict=True)) <= missing
    assert [coverage_bound(9, 3, 0, number) for number in range(1, 6)] == [3, 6, 8, 9, 9]
    assert [coverage_bound(3, 50, 4, number) for number in (1, 2)] == [8, 8]


def test_the_plan_finds_every_goal_by_episode_four_and_starts_over_if_there_is_none() -> None:
    env = room(size=3, max_episode_steps=4)
    _, played = play_episodes(CoveringPlan(env), env, torch.tensor([[9]]), 1, 6, seed=0)
    paths = torch.from_numpy(covering_plan(3, 4, 4))
    assert len(paths) == 2 and torch.equal(played.action[:24, 0].view(6, 4), paths.repeat(3, 1))
    env = room()
    found, _ = play_episodes(CoveringPlan(env), env, env.all_tasks(), 1, 6, seed=0)
    assert found.success.mean((0, 1)).tolist() == [0.25, 0.5, 0.75, 1, 1, 1]


def test_pushed_off_its_path_the_plan_comes_back_to_it_in_time() -> None:
    """Against a search by hand: of all cells of the path from the next step on, the first that moves can reach in time
    is where the shortest path of the explorer leads."""
    env = room()
    plan, (task, seeds) = CoveringPlan(env), (torch.full((60, 1), 81), torch.arange(60))
    walks = cells_walked(covering_plan(9, 20, 40), 9, 40).tolist()
    state, step = env.reset(task, seeds)
    carry, noise = plan.initial_carry(60), Noise(seeds)
    for t in range(100):
        best, carry = plan.act(carry, step, noise.draw(1)[0])
        for stream, cell in enumerate(step.obs.tolist()):
            path, now = walks[t // 20 % 4], t % 20
            meeting = [c for k, c in enumerate(path) if k > now and moves_between(cell, c) <= k - now] or path[-1:]
            after = scalar_move(9, cell, int(best[stream]))
            assert moves_between(after, meeting[0]) == max(moves_between(cell, meeting[0]) - 1, 0)
        action = torch.where(noise.draw(1)[0] < 0.2, (noise.draw(1)[0] * 5).long(), best)
        carry = plan.replace_action(carry, action)
        state, step = env.step(state, action)


def moves_between(a: int, b: int) -> int:
    return abs(a // 9 - b // 9) + abs(a % 9 - b % 9)


@pytest.mark.parametrize("terminate", [True, False])
@pytest.mark.parametrize("kind", [UniformWalk, PersistentWalk, TurningWalk, CoveringPlan])
def test_a_known_goal_is_approached_by_a_shortest_path(kind: Any, terminate: bool) -> None:
    env = room(size=5, max_episode_steps=10, terminate_on_goal=terminate)
    tasks: Any = env.all_tasks()
    found, played = play_episodes(kind(env), env, tasks, 20, 12, seed=0)
    goals, after = tasks[:, 0].repeat_interleave(20), next_cells(5).view(-1, 5)
    cells = torch.stack([played.obs, after[played.obs, played.action]])
    before, landed = (cells // 5 - goals // 5).abs() + (cells % 5 - goals % 5).abs()
    knows = played.reward[:-1].cumsum(0) > 0
    assert torch.equal(landed[1:][knows], (before[1:][knows] - 1).clamp(min=0))
    assert found.success[..., 0].mean() < 0.5 < found.success[..., -1].mean()


def test_walks_before_the_goal_is_found() -> None:
    """A uniform walk takes each action equally often. Persistent and turning walks keep their direction with
    probability 5/8 = 1/2 + 1/2 * 1/4, at walls too, and never stay; episodes begin anew. A persistent walk takes the
    other moves equally often, a turning walk never the one back."""
    env = room(size=4, max_episode_steps=8)
    nowhere = torch.tensor([[16]])
    _, played = play_episodes(UniformWalk(env), env, nowhere, 3000, 2, seed=1)
    shares = played.action.flatten().bincount(minlength=5) / played.action.numel()
    assert torch.allclose(shares, torch.full((5,), 0.2), atol=0.005)
    for walk, others in ((PersistentWalk(env), [1 / 3, 1 / 3, 1 / 3]), (TurningWalk(env), [1 / 2, 0, 1 / 2])):
        _, played = play_episodes(walk, env, nowhere, 3000, 2, seed=1)
        action, begins = played.action, played.timestep[1:] == 0
        same = action[1:] == action[:-1]
        assert action.min() == 1 and same[~begins].double().mean().item() == pytest.approx(0.625, abs=0.005)
        assert same[begins].double().mean().item() == pytest.approx(0.25, abs=0.02)
        turned = (action[1:] - action[:-1])[~begins & ~same] % 4
        shares = turned.bincount(minlength=4)[1:] / len(turned)
        assert torch.allclose(shares, torch.tensor(others), atol=0.01)
        assert (shares > 0).tolist() == [share > 0 for share in others]


def hit(size: int, horizon: int, turns: tuple[float, ...]) -> torch.Tensor:
    """Exact probabilities `[S]` that a walk with the odds `turns` from the centre visits each cell in an episode.
    The episode is followed once for each cell, which absorbs it."""
    after, cells = next_cells(size).view(-1, 5)[:, 1:], torch.arange(size**2)
    at = torch.zeros(len(cells), len(cells), 4, dtype=torch.float64)  # absorbing cell, cell, last move
    odds = torch.tensor([[turns[(move - last) % 4] for move in range(4)] for last in range(4)], dtype=torch.float64)
    at[:, size**2 // 2] = 1 / 4
    odds_now, found = torch.eye(4, dtype=torch.float64), torch.zeros(len(cells), dtype=torch.float64)
    for _ in range(horizon):
        moves, at = at @ odds_now, torch.zeros_like(at)
        for move in range(4):
            at[:, :, move].index_add_(1, after[:, move], moves[:, :, move])
        found += at[cells, cells].sum(1)
        at[cells, cells] = 0.0
        odds_now = odds
    return found


def success(size: int, horizon: int, turns: tuple[float, ...], episodes: range) -> float:
    """Exact mean success of such a walk with goal memory in `episodes` (from 1), over all goals beside the start."""
    found = hit(size, horizon, turns)[torch.arange(size**2) != size**2 // 2]
    return torch.stack([1 - (1 - found) ** episode for episode in episodes]).mean().item()


def test_the_odds_of_the_walks_and_their_exact_success() -> None:
    """The success that is simulated is the exact one. Of the multiples of 1/16, the probability with which a turning
    walk keeps its direction has the highest mean success in the rooms of 9 x 9 and 11 x 11, above persistent walks."""
    env = room(size=5, max_episode_steps=6)
    for kind in (PersistentWalk, TurningWalk):
        found, _ = play_episodes(kind(env), env, env.all_tasks(), 400, 6, seed=2)
        for episode in (1, 3, 6):
            exact = success(5, 6, kind.turns, range(episode, episode + 1))
            assert found.success[..., episode - 1].mean().item() == pytest.approx(exact, abs=0.015)

    def in_two_rooms(turns: tuple[float, ...]) -> float:
        return (success(9, 20, turns, range(31, 41)) + success(11, 20, turns, range(31, 41))) / 2

    worth = {kept: in_two_rooms((kept / 16, (1 - kept / 16) / 2, 0.0, (1 - kept / 16) / 2)) for kept in range(6, 15)}
    assert max(worth, key=worth.__getitem__) == TurningWalk.turns[0] * 16
    assert worth[10] == in_two_rooms(TurningWalk.turns) > in_two_rooms(PersistentWalk.turns) + 0.02
    for size, kind, expected in ((9, TurningWalk, 0.9956), (13, TurningWalk, 0.9304), (9, PersistentWalk, 0.9866)):
        assert success(size, 20, kind.turns, range(31, 41)) == pytest.approx(expected, abs=5e-5)  # as the pages say
