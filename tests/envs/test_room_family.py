"""Other rooms in one grid: the same steps as a dark room, walls of their own, goals where none is hidden."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import room

from icrl.envs.core import Family, TensorEnv
from icrl.randomness import stream_seeds

SIDE, CORNER, NUM_STEPS = 9, 2, 60


def family_of(env: TensorEnv, hidden: torch.Tensor, sizes: tuple[int, int] = (2, 4)) -> Family:
    family = env.family(SIDE, CORNER, sizes, hidden)
    assert family is not None
    return family


def in_grid(cell: torch.Tensor, size: int) -> torch.Tensor:
    return (CORNER + cell // size) * SIDE + CORNER + cell % size


@settings(max_examples=20)
@given(size=st.integers(2, 6), terminates=st.booleans(), random_start=st.booleans(), seed=st.integers(0, 10**6))
def test_the_room_itself_is_played_step_for_step_as_in_its_own_world(size, terminates, random_start, seed):
    env = room(size=size, max_episode_steps=7, terminate_on_goal=terminates, random_start=random_start)
    family, tasks = family_of(env, env.all_tasks()[:1]), env.all_tasks()
    seeds = stream_seeds(seed, len(tasks))
    if random_start:  # starts are drawn in another way, so only that they lie in the room is the same
        _, first = family.reset(family.translated(tasks), seeds)
        row, column = first.obs // SIDE - CORNER, first.obs % SIDE - CORNER
        assert ((row >= 0) & (row < size) & (column >= 0) & (column < size)).all()
        return
    (state, step), (there, other) = env.reset(tasks, seeds), family.reset(family.translated(tasks), seeds)
    actions = torch.randint(5, (NUM_STEPS, len(tasks)), generator=torch.Generator().manual_seed(seed))
    for action in (*actions, None):
        assert torch.equal(in_grid(step.obs, size), other.obs)
        assert torch.equal(in_grid(step.final_obs, size), other.final_obs)
        for name in ("reward", "terminated", "truncated", "timestep"):
            assert torch.equal(getattr(step, name), getattr(other, name)), name
        assert (other.optimal_action == 5).all()  # nothing tells what would be best
        if action is not None:
            (state, step), (there, other) = env.step(state, action), family.step(there, action)


@given(seed=st.integers(0, 10**6), least=st.integers(2, 5), more=st.integers(0, 4))
def test_drawn_rooms_lie_in_the_grid_and_have_no_goal_where_one_is_hidden(seed, least, more):
    env, sizes = room(size=4), (least, least + more)
    hidden = env.all_tasks()[::3]
    family, seeds = family_of(env, hidden, sizes), stream_seeds(seed, 300)
    drawn = family.draw(seeds)
    goal, top, left, size, start = drawn.T
    assert size.min() >= sizes[0] and size.max() <= sizes[1]
    assert (top >= 0).all() and (top + size <= SIDE).all() and (left >= 0).all() and (left + size <= SIDE).all()

    def inside(cell):
        row, column = cell // SIDE - top, cell % SIDE - left
        return (row >= 0) & (row < size) & (column >= 0) & (column < size)

    nowhere = goal == SIDE**2
    assert inside(start).all() and (inside(goal) | nowhere).all() and (goal != start).all()
    assert not torch.isin(goal, in_grid(hidden[:, 0], 4)).any()
    assert not nowhere.all() and len(goal.unique()) > SIDE  # most rooms have a goal, all over the grid
    assert torch.equal(drawn[:7], family.draw(seeds[:7]))  # further rooms change none


def test_an_agent_stays_between_the_walls_of_its_room_and_finds_its_goal_alone():
    """Against a walk in plain Python."""
    family = family_of(room(size=5), torch.zeros(0, 1, dtype=torch.long))
    tasks = family.draw(stream_seeds(3, 50))
    state, step = family.reset(tasks, stream_seeds(4, 50))
    cells = [divmod(int(task[4]), SIDE) for task in tasks]
    for action in torch.randint(5, (200, 50), generator=torch.Generator().manual_seed(0)):
        state, step = family.step(state, action)
        for stream, (goal, top, left, size, start) in enumerate(tasks.tolist()):
            row, column = cells[stream]
            down, right = ((0, 0), (-1, 0), (0, 1), (1, 0), (0, -1))[action[stream]]
            row, column = row + down, column + right
            row, column = min(max(row, top), top + size - 1), min(max(column, left), left + size - 1)
            assert step.final_obs[stream] == row * SIDE + column
            assert bool(step.reward[stream]) == (row * SIDE + column == goal) == bool(step.terminated[stream])
            ended = bool(step.terminated[stream] | step.truncated[stream])
            cells[stream] = divmod(start, SIDE) if ended else (row, column)
            assert step.obs[stream] == cells[stream][0] * SIDE + cells[stream][1]


def test_rooms_without_a_goal_are_one_task_for_each_room():
    family = family_of(room(size=5), torch.zeros(0, 1, dtype=torch.long))
    own = family.translated(room(size=5).all_tasks())
    assert len(family.unsolvable(own).unique(dim=0)) == 1
    assert room(size=5, permute_actions=True).family(SIDE, CORNER, (2, 4), own[:0, :2]) is None
