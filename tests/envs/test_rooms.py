"""DarkRoom against `toymeta`, one cell at a time in plain Python, and by hand."""

import itertools
from functools import partial

import pytest
import torch
from room_steps import check_peer, check_starts, check_streams
from toymeta.dark_room import DarkRoom as ToymetaRoom
from worlds import WORLDS, room

from icrl.envs.rooms import DOWN, LEFT, NUM_ACTIONS, RIGHT, STAY, UP, first_move
from icrl.randomness import stream_seeds
from icrl.spaces import discrete_spec


@pytest.mark.parametrize("terminate", [True, False])
def test_every_start_and_transition_equals_toymeta(terminate: bool) -> None:
    peer = lambda goal: ToymetaRoom(6, divmod(goal, 6), False, terminate_on_goal=terminate)  # noqa: E731
    check_peer(room(size=6, terminate_on_goal=terminate), peer)


@pytest.mark.parametrize("random_start", [True, False])
@pytest.mark.parametrize("terminate", [True, False])
@pytest.mark.parametrize("permuted", [True, False])
def test_streams_equal_scalar_loop(permuted: bool, terminate: bool, random_start: bool) -> None:
    """In a room with an even side, so that its start is not in the middle."""
    make = partial(room, permute_actions=permuted)
    check_streams(make, "terminate_on_goal", terminate, random_start, 4)


@pytest.mark.parametrize("name", WORLDS)
def test_a_stream_does_not_depend_on_its_neighbours(name: str) -> None:
    env = WORLDS[name]()
    tasks, seeds = env.all_tasks()[:8], stream_seeds(3, 8)
    actions = torch.randint(env.spec.num_actions, (40, 8), generator=torch.Generator().manual_seed(4))
    chosen = torch.tensor([6, 1, 3])
    (all_state, all_step), (state, step) = env.reset(tasks, seeds), env.reset(tasks[chosen], seeds[chosen])
    for action in actions:
        all_state, all_step = env.step(all_state, action)
        state, step = env.step(state, action[chosen])
        assert all(torch.equal(a, b[chosen]) for a, b in zip((*step, *state), (*all_step, *all_state), strict=True))


def test_random_starts_change_with_episode_and_seed_and_reach_every_cell() -> None:
    check_starts(room(size=3, random_start=True, max_episode_steps=1))


def test_tasks_sizes_and_descriptions() -> None:
    """The common start of all episodes is no goal."""
    goals = [0, 1, 2, 3, 5, 6, 7, 8]
    plain, permuted = room(size=3), room(size=3, permute_actions=True)
    assert plain.all_tasks().tolist() == [[goal] for goal in goals]
    assert room(size=3, random_start=True).all_tasks()[:, 0].tolist() == list(range(9))
    assert permuted.all_tasks().tolist() == [[goal, order] for goal in goals for order in range(120)]
    assert room(size=6, max_episode_steps=11).spec == discrete_spec(36, NUM_ACTIONS, (0.0, 1.0), 6, 11, "goal")
    assert room(size=6, terminate_on_goal=False).spec.success == "reward"
    assert permuted.label(torch.tensor([5, 119])) == "goal_1_2_actions_43210"
    assert plain.label(torch.tensor([5])) == "goal_1_2"
    assert permuted.map_view(torch.tensor([5, 119])) == (3, 3, (5,))
    assert permuted.goal_cell(permuted.all_tasks()[:121]).tolist() == [0] * 120 + [1]
    assert plain.fingerprint(torch.tensor([[5]])) == permuted.fingerprint(torch.tensor([[5, 0]])) == ["3: [5, 0]"]


@pytest.mark.parametrize("size", [2, 3, 6])
def test_the_first_move_goes_along_the_column_then_along_the_row(size: int) -> None:
    """Every pair of cells, and cells and targets of different shapes."""
    cells = torch.arange(size**2)
    found = first_move(cells[:, None], cells, size)
    for cell, target in itertools.product(range(size**2), repeat=2):
        (row, column), (to_row, to_column) = divmod(cell, size), divmod(target, size)
        across = LEFT if to_column < column else RIGHT if to_column > column else STAY
        expected = UP if to_row < row else DOWN if to_row > row else across
        assert found[cell, target] == first_move(torch.tensor(cell), torch.tensor(target), size) == expected
    assert (first_move(cells, torch.full_like(cells, size**2), size) == DOWN).all()  # outside, below the last row
