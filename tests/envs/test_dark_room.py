"""DarkRoom against other implementations of it: the `toymeta` package and one cell at a time in plain Python."""

import itertools

import gymnasium
import numpy as np
import pytest
import torch
import toymeta  # registers its environments
from hypothesis import given, settings
from hypothesis import strategies as st
from toymeta.dark_room import DarkRoom as ToymetaRoom
from worlds import room, scalar_move

from icrl.contracts import Step
from icrl.envs.core import State
from icrl.envs.rooms import DOWN, NUM_ACTIONS, STAY, UP
from icrl.randomness import stream_seeds


def at(cells: torch.Tensor, goals: torch.Tensor) -> State:
    """Streams in the first step of an episode on given cells, with given goals `[B]`."""
    zero = torch.zeros_like(cells)
    return State(goals[:, None], zero, zero, cells, zero)


def row_of(step: Step, stream: int) -> tuple[int | bool, ...]:
    return tuple(field[stream].item() for field in step[:-1])  # all but the optimal action


@pytest.mark.parametrize("terminate", [True, False])
def test_every_transition_equals_toymeta(terminate: bool) -> None:
    size = 9
    env = room(size=size, terminate_on_goal=terminate)
    goals, cells, actions = torch.cartesian_prod(
        env.all_tasks()[:, 0], torch.arange(size**2), torch.arange(NUM_ACTIONS)
    ).T
    _, step = env.step(at(cells, goals), actions)
    ours = torch.stack([step.final_obs, step.reward, step.terminated], dim=1).tolist()

    theirs = []
    for goal in env.all_tasks()[:, 0].tolist():
        peer = ToymetaRoom(size, goal=divmod(goal, size), random_start=False, terminate_on_goal=terminate)
        for cell in range(size**2):
            for action in range(NUM_ACTIONS):
                peer.agent_pos = np.array(divmod(cell, size), dtype=np.float32)
                obs, reward, terminated, _, _ = peer.step(action)
                theirs.append([obs, int(reward), int(terminated)])
    assert ours == theirs


@pytest.mark.parametrize(
    ("env_id", "size", "steps"),
    [("Dark-Room-9x9-v0", 9, 20), ("Dark-Room-3x3-v0", 3, 10), ("Dark-Room-Hard-17x17-v0", 17, 20)],
)
def test_episodes_equal_toymeta(env_id: str, size: int, steps: int) -> None:
    """Start, clock and reset, over several episodes of what `toymeta` registers."""
    assert toymeta.__version__ == "0.0.1"
    hard = size == 17
    goal = (size // 2 - 1, size // 2 + 1)
    peer = gymnasium.make(env_id, goal=goal)
    env = room(size=size, terminate_on_goal=hard, max_episode_steps=steps)
    state, step = env.reset(torch.tensor([[goal[0] * size + goal[1]]]), torch.tensor([0]))
    obs, _ = peer.reset()
    ends = []
    for action in torch.randint(NUM_ACTIONS, (400,), generator=torch.Generator().manual_seed(0)).tolist():
        assert step.obs.item() == obs
        state, step = env.step(state, torch.tensor([action]))
        obs, reward, terminated, truncated, _ = peer.step(action)
        assert (step.final_obs.item(), step.reward.item()) == (obs, reward)
        assert (step.terminated.item(), step.truncated.item()) == (terminated, truncated)
        ends.append((terminated, truncated))
        if terminated or truncated:
            obs, _ = peer.reset()
    assert (False, True) in ends
    assert ((True, False) in ends) == hard


@pytest.mark.parametrize("random_start", [True, False])
@pytest.mark.parametrize("terminate", [True, False])
def test_streams_equal_scalar_loop(terminate: bool, random_start: bool) -> None:
    """All fields of every step; an even side, so that the centre is not in the middle."""
    size, limit = 4, 7
    env = room(size=size, terminate_on_goal=terminate, random_start=random_start, max_episode_steps=limit)
    tasks = env.all_tasks()
    actions = torch.randint(NUM_ACTIONS, (60, len(tasks)), generator=torch.Generator().manual_seed(1))
    state, first = env.reset(tasks, stream_seeds(2, len(tasks)))
    cells, clocks = first.obs.tolist(), [0] * len(tasks)
    for action in actions:
        state, step = env.step(state, action)
        for stream, goal in enumerate(tasks[:, 0].tolist()):
            cell, clock = scalar_move(size, cells[stream], int(action[stream])), clocks[stream] + 1
            terminated, truncated = terminate and cell == goal, clock == limit
            shown = cell
            if terminated or truncated:
                shown, clock = (int(step.obs[stream]) if random_start else 10), 0
            assert row_of(step, stream) == (shown, int(cell == goal), terminated, truncated, cell, clock)
            cells[stream], clocks[stream] = shown, clock
    assert torch.equal(state.state_index, step.obs)
    assert torch.equal(state.timestep, step.timestep)


def test_reaching_the_goal_terminates_and_restarts_at_once() -> None:
    env = room(size=3, terminate_on_goal=True)
    state, first = env.reset(torch.tensor([[1]]), torch.tensor([5]))
    assert row_of(first, 0) == (4, 0, False, False, 4, 0)
    state, step = env.step(state, torch.tensor([UP]))
    assert row_of(step, 0) == (4, 1, True, False, 1, 0)
    assert (int(state.episode), int(state.state_index), state.task.tolist()) == (1, 4, [[1]])


def test_the_clock_truncates_and_restarts_at_once() -> None:
    env = room(size=3, terminate_on_goal=True, max_episode_steps=2)
    state, _ = env.reset(torch.tensor([[1]]), torch.tensor([5]))
    state, step = env.step(state, torch.tensor([DOWN]))
    assert row_of(step, 0) == (7, 0, False, False, 7, 1)
    state, step = env.step(state, torch.tensor([STAY]))
    assert row_of(step, 0) == (4, 0, False, True, 7, 0)
    assert int(state.episode) == 1


def test_goal_in_the_last_step_both_terminates_and_truncates() -> None:
    env = room(size=3, terminate_on_goal=True, max_episode_steps=1)
    _, step = env.step(env.reset(torch.tensor([[1]]), torch.tensor([5]))[0], torch.tensor([UP]))
    assert row_of(step, 0) == (4, 1, True, True, 1, 0)


def test_classic_room_rewards_every_step_on_the_goal() -> None:
    env = room(size=3, terminate_on_goal=False, max_episode_steps=4)
    state, _ = env.reset(torch.tensor([[1]]), torch.tensor([5]))
    steps = []
    for action in (UP, STAY, UP, DOWN):
        state, step = env.step(state, torch.tensor([action]))
        steps.append((step.reward.item(), step.terminated.item(), step.truncated.item()))
    assert steps == [(1, False, False), (1, False, False), (1, False, False), (0, False, True)]


def test_a_stream_does_not_depend_on_its_neighbours() -> None:
    env = room(size=5, random_start=True, max_episode_steps=6)
    tasks, seeds = env.all_tasks(), stream_seeds(3, 25)
    actions = torch.randint(NUM_ACTIONS, (80, 25), generator=torch.Generator().manual_seed(4))
    chosen = torch.tensor([17, 3, 24])

    def play(streams: torch.Tensor) -> list[Step]:
        state, step = env.reset(tasks[streams], seeds[streams])
        steps = [step]
        for action in actions:
            state, step = env.step(state, action[streams])
            steps.append(step)
        return steps

    for few, many in zip(play(chosen), play(torch.arange(25)), strict=True):
        for field, field_of_many in zip(few, many, strict=True):
            assert torch.equal(field, field_of_many[chosen])


def test_random_starts_change_with_episode_and_seed_and_reach_every_cell() -> None:
    env = room(size=3, random_start=True, max_episode_steps=1)
    state, step = env.reset(torch.zeros(40, 1, dtype=torch.long), stream_seeds(6, 40))
    starts = [step.obs]
    for _ in range(39):
        state, step = env.step(state, torch.zeros(40, dtype=torch.long))
        starts.append(step.obs)
    table = torch.stack(starts)  # [episode, stream]
    counts = table.flatten().bincount(minlength=9)
    assert counts.min() > 130 and counts.max() < 226  # 1600 draws of 9: 178 +- 4 standard deviations
    assert len({tuple(row) for row in table.tolist()}) == 40
    assert len({tuple(column) for column in table.T.tolist()}) == 40


@pytest.mark.parametrize("size", [4, 5])
def test_optimal_action_takes_the_shortest_path(size: int) -> None:
    env = room(size=size, terminate_on_goal=False, max_episode_steps=60)
    cells, goals = torch.cartesian_prod(torch.arange(size**2), torch.arange(size**2)).T
    distance = (cells // size - goals // size).abs() + (cells % size - goals % size).abs()
    state = at(cells, goals)
    for now in range(1, 2 * size):
        state, step = env.step(state, env.optimal_action(state))
        assert torch.equal(step.reward == 1, distance <= now)  # it arrives in time and stays


def test_tasks_are_all_goals_but_the_common_start() -> None:
    assert room(size=3).all_tasks().tolist() == [[0], [1], [2], [3], [5], [6], [7], [8]]
    assert room(size=3, random_start=True).all_tasks()[:, 0].tolist() == list(range(9))


def test_spec_gives_the_sizes() -> None:
    assert room(size=6, max_episode_steps=11).spec == (36, NUM_ACTIONS, (0.0, 1.0), 6, 11, "goal", (0, 0))
    assert room(size=6, terminate_on_goal=False).spec.success == "reward"


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_permuted_actions_do_what_the_permutation_says(seed: int, terminate: bool, random_start: bool) -> None:
    """Every field of many steps equals the plain room's, where it is given what each action does."""
    options = {"size": 4, "terminate_on_goal": terminate, "random_start": random_start, "max_episode_steps": 7}
    plain, permuted = room(**options), room(**options, permute_actions=True)
    orders = torch.tensor(list(itertools.permutations(range(NUM_ACTIONS))))
    generator = torch.Generator().manual_seed(seed)
    tasks = permuted.all_tasks()[torch.randint(len(permuted.all_tasks()), (30,), generator=generator)]
    does = orders[tasks[:, 1]]  # [B, A]
    state, step = permuted.reset(tasks, stream_seeds(seed, 30))
    plain_state, plain_step = plain.reset(tasks[:, :1], stream_seeds(seed, 30))
    for action in torch.randint(NUM_ACTIONS, (25, 30), generator=generator):
        assert all(torch.equal(a, b) for a, b in zip(step[:-1], plain_step[:-1], strict=True))
        assert torch.equal(does.gather(1, step.optimal_action[:, None])[:, 0], plain_step.optimal_action)
        state, step = permuted.step(state, action)
        plain_state, plain_step = plain.step(plain_state, does.gather(1, action[:, None])[:, 0])


def test_permuted_tasks_are_every_goal_with_every_permutation() -> None:
    env = room(size=3, permute_actions=True)
    assert env.all_tasks().tolist() == [[goal, order] for goal in (0, 1, 2, 3, 5, 6, 7, 8) for order in range(120)]
    assert env.label(torch.tensor([5, 119])) == "goal_1_2_actions_43210"
    assert room(size=3).label(torch.tensor([5])) == "goal_1_2"
    assert env.map_view(torch.tensor([5, 119])) == (3, 3, (5,))
    assert env.goal_cell(env.all_tasks()[:121]).tolist() == [0] * 120 + [1]


def test_a_step_tells_the_optimal_action_of_the_state_it_shows() -> None:
    """After a reset too: that of the new episode's first state."""
    env = room(size=3)
    state, step = env.reset(torch.tensor([[1], [8]]), torch.tensor([0, 1]))
    assert step.optimal_action.tolist() == [UP, DOWN]
    _, step = env.step(state, torch.tensor([UP, UP]))
    assert step.optimal_action.tolist() == [UP, DOWN]
    assert step.terminated.tolist() == [True, False]
