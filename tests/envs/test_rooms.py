"""DarkRoom and Key-to-Door against `toymeta`, one cell at a time in plain Python, and by hand."""

import itertools
from functools import partial
from importlib.metadata import version

import numpy as np
import pytest
import torch
from small_worlds import key_to_door
from toymeta.dark_key_door import DarkKeyToDoor as ToymetaKeyToDoor
from toymeta.dark_room import DarkRoom as ToymetaRoom
from worlds import WORLDS, room, scalar_move

from icrl.envs.core import State, look_up
from icrl.envs.rooms import DOWN, LEFT, NUM_ACTIONS, RIGHT, STAY, UP, first_move, symmetries
from icrl.randomness import stream_seeds
from icrl.spaces import discrete_spec


@pytest.mark.parametrize(
    ("env", "peer_of"),
    [
        (room(size=6), lambda goal: ToymetaRoom(6, divmod(goal, 6), False, terminate_on_goal=True)),
        (room(size=6, terminate_on_goal=False), lambda goal: ToymetaRoom(6, divmod(goal, 6), False)),
        (key_to_door(size=3), lambda key, door: ToymetaKeyToDoor(3, (divmod(door, 3), divmod(key, 3)))),
    ],
)
def test_every_start_and_transition_equals_toymeta(env, peer_of) -> None:
    """Next state index, reward and end for each task, state and action in turn."""
    assert version("toymeta") == "0.0.1"
    size, tasks, theirs = env.size, env.all_tasks(), []
    for task in tasks.tolist():
        peer = peer_of(*task)
        assert peer.reset()[0] == env.starts.item()
        for has_key, cell, action in itertools.product(range(env.num_states // size**2), range(size**2), range(5)):
            peer.has_key, peer.agent_pos = bool(has_key), np.array(divmod(cell, size), dtype=np.float32)
            obs, reward, terminated, _, info = peer.step(action)
            theirs.append([info.get("has_key", 0) * size**2 + obs, int(reward), int(terminated)])
    number, state_index, action = torch.cartesian_prod(*map(torch.arange, (len(tasks), env.num_states, 5))).T
    zero = torch.zeros_like(number)
    ours = env.move(State(tasks[number], zero, zero, state_index, zero), action)
    assert torch.stack(ours, dim=1).tolist() == theirs


@pytest.mark.parametrize("random_start", [True, False])
@pytest.mark.parametrize("option", [True, False])
@pytest.mark.parametrize("make", [room, partial(room, permute_actions=True), key_to_door])
def test_streams_equal_scalar_loop(make, option: bool, random_start: bool) -> None:
    """All fields of every step; one room has an even side, so that its start is not in the middle."""
    is_room, limit, start = make is not key_to_door, 9, 4 if make is key_to_door else 10
    size, name = (4, "terminate_on_goal") if is_room else (3, "show_key")
    env = make(**{"size": size, name: option, "random_start": random_start, "max_episode_steps": limit})
    permuted, meaning = "permutation" in env.task_columns, list(itertools.permutations(range(NUM_ACTIONS)))
    tasks = env.all_tasks()[:: 37 if permuted else 1]
    state, first = env.reset(tasks, stream_seeds(2, len(tasks)))
    cells, keys, clocks = first.obs.tolist(), [False] * len(tasks), [0] * len(tasks)
    ends = set()
    for action in torch.randint(NUM_ACTIONS, (60, len(tasks)), generator=torch.Generator().manual_seed(1)):
        state, step = env.step(state, action)
        for stream, task in enumerate(tasks.tolist()):
            move, had_key = int(action[stream]), keys[stream]
            cell = scalar_move(size, cells[stream], meaning[task[1]][move] if permuted else move)
            paid = cell == (task[1] if had_key else task[0])
            terminated = paid and (option if is_room else had_key)
            has_key = not is_room and (had_key or paid)
            clock = clocks[stream] + 1
            truncated = clock == limit
            final_obs = obs = cell + size**2 * (has_key and option)
            if terminated or truncated:
                cell = obs = int(step.obs[stream]) if random_start else start
                assert cell < size**2
                has_key, clock = False, 0
            got = tuple(field[stream].item() for field in step[:-1])
            assert got == (obs, int(paid), terminated, truncated, final_obs, clock)
            cells[stream], keys[stream], clocks[stream] = cell, has_key, clock
            ends.add((terminated, truncated))
    assert torch.equal(state.timestep, step.timestep)
    assert ends == {(False, False), (False, True)} | ({(True, False), (True, True)} if option or not is_room else set())


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
    env = key_to_door(size=3, random_start=True, max_episode_steps=1)
    state, step = env.reset(env.all_tasks()[:1].repeat(40, 1), stream_seeds(6, 40))
    starts = [step.obs]
    for _ in range(39):
        state, step = env.step(state, torch.zeros(40, dtype=torch.long))
        starts.append(step.obs)
    table = torch.stack(starts)  # [episode, stream]
    counts = table.flatten().bincount()
    assert len(counts) == 9 and counts.min() > 130 and counts.max() < 226  # 1600 draws: 178 +- 4 standard deviations
    assert len(table.unique(dim=0)) == len(table.unique(dim=1).T) == 40


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
    pairs = [[key, door] for key in range(4) for door in range(4) if key != door]
    assert key_to_door(size=2).all_tasks().tolist() == pairs and len(key_to_door().all_tasks()) == 6480
    shown, hidden, task = key_to_door(size=4), key_to_door(size=4, show_key=False), torch.tensor([6, 13])
    assert hidden.spec == discrete_spec(16, NUM_ACTIONS, (0.0, 1.0), 4, 50, "goal")
    assert shown.spec == discrete_spec(32, NUM_ACTIONS, (0.0, 1.0), 4, 50, "goal")
    assert shown.num_states == hidden.num_states == shown.spec.num_obs == 32
    assert (shown.label(task), shown.map_view(task)) == ("key_1_2_door_3_1", (4, 4, (6, 13)))
    assert shown.goal_cell(shown.all_tasks()[:2]).tolist() == [1, 2]
    assert shown.cell(torch.tensor([5, 21]), torch.tensor([0, -1])).tolist() == [5, 5]


@pytest.mark.parametrize("size", [2, 3, 6, 9])
def test_a_symmetry_maps_moves_to_moves(size: int) -> None:
    """The eight images of the room differ, and where an action leads has the image where the action's image leads."""
    cells, actions = (table.tolist() for table in symmetries(size))
    assert len({tuple(row) for row in cells}) == 8 and cells[0] == list(range(size**2))
    for to, does in zip(cells, actions, strict=True):
        assert sorted(to) == list(range(size**2)) and sorted(does) == [0, 1, 2, 3, 4]
        for cell, action in itertools.product(range(size**2), range(NUM_ACTIONS)):
            assert scalar_move(size, to[cell], does[action]) == to[scalar_move(size, cell, action)]


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


def test_look_up_is_indexing() -> None:
    table, index = torch.randn(7, requires_grad=True), torch.tensor([[3, 0], [3, 6], [3, 3]])
    found = look_up(table, index)
    assert torch.equal(found, table[index])
    found.sum().backward()
    assert table.grad.tolist() == [1, 0, 0, 4, 0, 0, 1]
