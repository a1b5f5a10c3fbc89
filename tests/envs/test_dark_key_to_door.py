"""Dark Key-to-Door against `toymeta` and against one cell at a time in plain Python."""

import numpy as np
import pytest
import torch
from toymeta.dark_key_door import DarkKeyToDoor as ToymetaKeyToDoor
from worlds import key_to_door, scalar_move

from icrl.envs.core import State
from icrl.envs.rooms import NUM_ACTIONS
from icrl.randomness import stream_seeds


def test_every_transition_equals_toymeta() -> None:
    """All keys, doors, cells and actions of a small room, with and without the key."""
    size = 3
    env = key_to_door(size=size)
    grid = torch.cartesian_prod(
        torch.arange(len(env.all_tasks())), torch.arange(2 * size**2), torch.arange(NUM_ACTIONS)
    )
    task, place, action = grid.T
    zero = torch.zeros_like(place)
    place_after, reward, terminated = env.move(State(env.all_tasks()[task], zero, zero, place, zero), action)
    ours = torch.stack([place_after, reward, terminated], dim=1).tolist()

    theirs = []
    for key, door in env.all_tasks().tolist():
        peer = ToymetaKeyToDoor(size, goal=(divmod(door, size), divmod(key, size)))
        for has_key in (False, True):
            for cell in range(size**2):
                for each in range(NUM_ACTIONS):
                    peer.has_key, peer.agent_pos = has_key, np.array(divmod(cell, size), dtype=np.float32)
                    obs, paid, ended, _, info = peer.step(each)
                    theirs.append([info["has_key"] * size**2 + obs, int(paid), int(ended)])
    assert ours == theirs


def test_episodes_equal_toymeta() -> None:
    """What a stream shows over many episodes, in a room in which random play opens doors; the key is hidden."""
    env = key_to_door(size=3, show_key=False, max_episode_steps=20)
    ends = []
    for key, door in ((0, 8), (4, 3), (2, 4), (7, 6)):
        peer = ToymetaKeyToDoor(3, goal=(divmod(door, 3), divmod(key, 3)))
        state, step = env.reset(torch.tensor([[key, door]]), torch.tensor([0]))
        obs, _ = peer.reset()
        clock = 0
        for action in torch.randint(NUM_ACTIONS, (300,), generator=torch.Generator().manual_seed(key)).tolist():
            assert step.obs.item() == obs
            state, step = env.step(state, torch.tensor([action]))
            obs, reward, terminated, _, _ = peer.step(action)
            clock += 1
            assert (step.final_obs.item(), step.reward.item(), step.terminated.item()) == (obs, reward, terminated)
            assert step.truncated.item() == (clock == 20)
            ends.append((terminated, clock == 20))
            if terminated or clock == 20:
                obs, clock = peer.reset()[0], 0
    assert {(True, False), (False, True)} <= set(ends)


@pytest.mark.parametrize("show_key", [True, False])
@pytest.mark.parametrize("random_start", [True, False])
def test_streams_equal_scalar_loop(show_key: bool, random_start: bool) -> None:
    size, limit = 3, 25
    env = key_to_door(size=size, show_key=show_key, random_start=random_start, max_episode_steps=limit)
    tasks = env.all_tasks()
    actions = torch.randint(NUM_ACTIONS, (90, len(tasks)), generator=torch.Generator().manual_seed(1))
    state, first = env.reset(tasks, stream_seeds(2, len(tasks)))
    cells, keys, clocks = first.obs.tolist(), [False] * len(tasks), [0] * len(tasks)
    opened = 0
    for action in actions:
        state, step = env.step(state, action)
        for stream, (key, door) in enumerate(tasks.tolist()):
            cell, clock = scalar_move(size, cells[stream], int(action[stream])), clocks[stream] + 1
            paid = cell == door if keys[stream] else cell == key
            terminated, truncated = keys[stream] and cell == door, clock == limit
            has_key = keys[stream] or cell == key
            final_obs = shown = cell + 9 * has_key * show_key
            if terminated or truncated:
                cell, clock, has_key = (int(step.obs[stream]) if random_start else 4), 0, False
                assert cell < 9  # no episode starts with the key
                shown = cell
            got = tuple(field[stream].item() for field in step[:-1])
            assert got == (shown, int(paid), terminated, truncated, final_obs, clock)
            cells[stream], keys[stream], clocks[stream] = cell, has_key, clock
            opened += terminated
    assert opened > 50


def test_random_starts_reach_every_cell() -> None:
    env = key_to_door(size=3, random_start=True)
    obs = env.reset(torch.tensor([[0, 8]]).expand(200, 2), stream_seeds(0, 200))[1].obs
    assert set(obs.tolist()) == set(range(9))


def test_tasks_are_all_pairs_of_different_cells() -> None:
    pairs = [[key, door] for key in range(4) for door in range(4) if key != door]
    assert key_to_door(size=2).all_tasks().tolist() == pairs
    assert len(key_to_door().all_tasks()) == 6480


def test_sizes_and_descriptions() -> None:
    shown, hidden = key_to_door(size=4), key_to_door(size=4, show_key=False)
    assert shown.spec == (32, NUM_ACTIONS, (0.0, 1.0), 4, 50, "goal", (0, 0))
    assert hidden.spec == (16, NUM_ACTIONS, (0.0, 1.0), 4, 50, "goal", (0, 0))
    assert shown.num_states == hidden.num_states == 32
    task = torch.tensor([6, 13])
    assert shown.label(task) == "key_1_2_door_3_1"
    assert shown.map_view(task) == (4, 4, (6, 13))
    assert shown.goal_cell(shown.all_tasks()[:2]).tolist() == [1, 2]
    assert shown.cell(torch.tensor([5, 21]), torch.tensor([0, -1])).tolist() == [5, 5]
