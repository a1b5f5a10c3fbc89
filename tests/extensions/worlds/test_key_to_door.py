"""Key-to-Door against `toymeta`, one cell at a time in plain Python, and by hand."""

import pytest
import torch
from room_steps import check_peer, check_starts, check_streams
from small_worlds import key_to_door
from toymeta.dark_key_door import DarkKeyToDoor as ToymetaKeyToDoor

from icrl.envs.rooms import NUM_ACTIONS
from icrl.extensions.exact.expectation import random_exact
from icrl.spaces import discrete_spec


def test_every_start_and_transition_equals_toymeta() -> None:
    check_peer(key_to_door(size=3), lambda key, door: ToymetaKeyToDoor(3, (divmod(door, 3), divmod(key, 3))))


@pytest.mark.parametrize(("show_key", "random_start"), [(True, True), (False, False)])
def test_streams_equal_scalar_loop(show_key: bool, random_start: bool) -> None:
    check_streams(key_to_door, "show_key", show_key, random_start, 3)


def test_random_starts_change_with_episode_and_seed_and_reach_every_cell() -> None:
    check_starts(key_to_door(size=3, random_start=True, max_episode_steps=1))


def test_tasks_sizes_and_descriptions() -> None:
    pairs = [[key, door] for key in range(4) for door in range(4) if key != door]
    assert key_to_door(size=2).all_tasks().tolist() == pairs and len(key_to_door().all_tasks()) == 6480
    shown, hidden, task = key_to_door(size=4), key_to_door(size=4, show_key=False), torch.tensor([6, 13])
    assert hidden.spec == discrete_spec(16, NUM_ACTIONS, (0.0, 1.0), 4, 50, "goal")
    assert shown.spec == discrete_spec(32, NUM_ACTIONS, (0.0, 1.0), 4, 50, "goal")
    assert shown.num_states == hidden.num_states == shown.spec.num_obs == 32
    assert (shown.label(task), shown.map_view(task)) == ("key_1_2_door_3_1", (4, 4, (6, 13)))
    assert shown.goal_cell(shown.all_tasks()[:2]).tolist() == [1, 2]
    assert shown.cell(torch.tensor([5, 21]), torch.tensor([0, -1])).tolist() == [5, 5]


def test_the_published_number_of_key_to_door() -> None:
    """9 x 9, 50 steps, all 6480 tasks: by symmetry those with the key in one eighth of the room stand for all. The
    numbers come from the times of first arrival at the key and, from there, at the door, and their convolution."""
    env = key_to_door(random_start=True)
    key = env.all_tasks()[:, 0]
    row, column = key // 9, key % 9
    eighth = (row <= column) & (column <= 4)
    on_axis = (row == column).long() + (column == 4).long()  # 0: 8 cells like this one; 1: 4; 2: the centre
    alike = torch.tensor([8, 4, 1])[on_axis[eighth]].double()
    assert alike.sum() == 6480
    found = random_exact(env, env.all_tasks()[eighth])
    assert float((found.returns * alike).sum() / 6480) == pytest.approx(0.24994, abs=5e-6)
