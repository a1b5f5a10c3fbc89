"""Goals that move, and rewards at other cells, against the plain world and loops."""

from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from installed import needs
from worlds import WORLDS, room

from icrl.app.compose import load_config
from icrl.contracts import Rollout
from icrl.envs.exact import Chance
from icrl.evaluation.in_context import play_episodes, play_steps
from icrl.evaluation.references import references_of
from icrl.extensions.moved_goal.diagnostic import can_move, movers, other_goal_first, others_first
from icrl.extensions.moved_goal.world import MovedGoal, moving

CONFIG = load_config(["env.size=4", "env.max_episode_steps=6"])


@pytest.mark.parametrize("terminate", [True, False])
def test_a_stream_plays_one_task_and_then_the_other(terminate: bool) -> None:
    """Its steps, with the optimal actions, are those of the plain world under the same actions."""
    env = room(size=4, max_episode_steps=6, terminate_on_goal=terminate)
    tasks, num_before = env.all_tasks()[[0, 5, 14]], 3
    played = play_steps(Chance(env.spec), MovedGoal(env, num_before), moving(tasks), 2, 60, seed=1)
    assert played.reward.sum() > 0
    for stream in range(6):
        ends = (played.terminated | played.truncated)[:, stream].nonzero()[:, 0].tolist()
        before, after = tasks[stream // 2], tasks[(stream // 2 + 1) % 3]
        for task, span in ((before, slice(ends[num_before - 1] + 1)), (after, slice(ends[num_before - 1] + 1, 60))):
            actions = iter(played.action[span, stream].tolist())
            state, step = env.reset(task[None], torch.zeros(1, dtype=torch.long))
            for t in range(60)[span]:
                assert (int(step.obs), int(step.timestep)) == (
                    int(played.obs[t, stream]),
                    int(played.timestep[t, stream]),
                )
                assert int(step.optimal_action) == int(played.optimal_action[t, stream])
                state, step = env.step(state, torch.tensor([next(actions)]))
                assert int(step.reward) == int(played.reward[t, stream])
                assert bool(step.terminated) == bool(played.terminated[t, stream])


def test_only_dark_rooms_with_several_tasks_and_plain_actions_have_moving_goals() -> None:
    env = room()
    assert can_move(env, env.all_tasks()) and not can_move(env, env.all_tasks()[:1])
    for other in (make() for name, make in WORLDS.items() if name not in ("terminating room", "classic room")):
        assert not can_move(other, other.all_tasks()[:3])
        assert others_first(other, other.all_tasks()[:3], {}) == {}
    assert moving(torch.tensor([[3], [5], [7]])).tolist() == [[3, 5], [5, 7], [7, 3]]
    assert MovedGoal(env, 2).all_tasks().shape == (80, 2)


# ---- references that forget


@needs("searchers")
def test_a_searcher_forgets_a_goal_that_has_moved() -> None:
    """It misses the goal once, then looks everywhere else, and at last has it again."""
    env = room(size=5, max_episode_steps=10)
    tasks = torch.tensor([[0], [24], [3]])  # none is on the shortest path to the next
    found, played = play_episodes(references_of(env)["searcher"], MovedGoal(env, 10), moving(tasks), 4, 24, seed=0)
    assert found.success[..., 5:10].all() and found.success[..., 14:].all()
    old = other_goal_first(played, moving(tasks)[:, 1], tasks[:, 0], 24)
    assert old[..., 10].all()
    assert old[..., 11:].sum() <= 3 * 4  # on the way to another cell
    steps = found.steps_to_goal[..., 15:].mean((1, 2))
    distance = [abs(cell // 5 - 2) + abs(cell % 5 - 2) for cell in moving(tasks)[:, 1].tolist()]
    assert steps == pytest.approx(distance)


@needs("searchers")
@pytest.mark.parametrize(
    "explorer", ["covering plan", "persistent walk with goal memory", "uniform walk with goal memory"]
)
def test_explorers_forget_a_goal_that_has_moved(explorer: str) -> None:
    """They visit the old goal once more, and end at the new one by a shortest path."""
    env = room(size=4, max_episode_steps=12)
    tasks = torch.tensor([[0], [15], [3]])
    found, played = play_episodes(references_of(env)[explorer], MovedGoal(env, 60), moving(tasks), 4, 120, seed=0)
    assert found.success[..., [59, 119]].all()
    assert other_goal_first(played, moving(tasks)[:, 1], tasks[:, 0], 120)[..., 60].all()
    distance = [abs(cell // 4 - 2) + abs(cell % 4 - 2) for cell in moving(tasks)[:, 1].tolist()]
    assert found.steps_to_goal[..., -1].mean(1) == pytest.approx(distance)


def test_the_model_and_references_with_a_memory_are_played() -> None:
    env = room()
    learners = references_of(env)
    assert list(movers(Mock(), learners)) == ["model", *learners]
    assert list(movers(Mock(), {"random": Chance(env.spec)})) == ["model"]


# ---- which goal comes first


@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
@settings(deadline=None, max_examples=20)
def test_the_first_visit_by_loops(seed: int, num_tasks: int, num_streams: int, num_episodes: int) -> None:
    generator, num_steps = torch.Generator().manual_seed(seed), 40
    cells = torch.randint(4, (num_steps, num_tasks * num_streams), generator=generator)
    ends = torch.rand(cells.shape, generator=generator) < 0.25
    goals, others = torch.randint(4, (2, num_tasks), generator=generator)
    zero = torch.zeros_like(cells)
    played = Rollout(zero, zero, zero, cells, zero, ends, zero.bool(), zero)
    found = other_goal_first(played, goals, others, num_episodes)
    assert found.shape == (num_tasks, num_streams, num_episodes)
    for task, stream in np.ndindex(num_tasks, num_streams):
        episodes: list[list[int]] = [[]]
        for cell, end in zip(
            *(column[:, task * num_streams + stream].tolist() for column in (cells, ends)), strict=True
        ):
            episodes[-1].append(cell)
            if end:
                episodes.append([])
        for number, walk in enumerate((episodes + [[]] * num_episodes)[:num_episodes]):
            first = next((cell for cell in walk if cell in (goals[task], others[task])), None)
            expected = first is not None and first != goals[task]
            assert bool(found[task, stream, number]) == expected


def test_goals_of_a_moved_goal_and_of_misleading_contexts() -> None:
    env = room(size=3)
    tasks = torch.tensor([[1], [3]])  # above the centre and left of it
    up, left = (torch.full((3, 2), cell) for cell in (1, 3))
    zero, ends = torch.zeros_like(up), torch.ones_like(up, dtype=torch.bool)
    adaptation = Mock(success=np.zeros((2, 1, 3)))
    walks = {name: (adaptation, Rollout(zero, zero, zero, cells, zero, ends, ends, zero)) for name, cells in (
        ("moved goal: model", up), ("other_task", left), ("blank", left)
    )}  # fmt: skip
    found = others_first(env, tasks, walks)
    assert list(found) == ["moved goal: model", "other_task"]
    assert found["moved goal: model"][:, 0, 0].tolist() == [1, 0]  # the first goal of task 0 is above
    assert found["other_task"][:, 0, 0].tolist() == [1, 0]
