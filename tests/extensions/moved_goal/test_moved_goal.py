"""Goals that move against the plain world and loops; numbers, table and picture of the diagnostic."""

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from installed import needs
from results import write_results
from worlds import WORLDS, room

from icrl.app.compose import load_config
from icrl.contracts import PipelineError, Rollout
from icrl.envs import make_env
from icrl.envs.core import TensorEnv
from icrl.envs.policies import Chance
from icrl.evaluation.in_context import Adaptation, play_episodes, play_steps
from icrl.evaluation.protocol import Setting, summarise
from icrl.evaluation.references import exact_references, references_of
from icrl.evaluation.report import read_results
from icrl.extensions.moved_goal import diagnostic
from icrl.extensions.moved_goal.world import MovedGoal, moving


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
                for name in ("obs", "timestep", "optimal_action"):
                    assert int(getattr(step, name)) == int(getattr(played, name)[t, stream])
                state, step = env.step(state, torch.tensor([next(actions)]))
                assert int(step.reward) == int(played.reward[t, stream])
                assert bool(step.terminated) == bool(played.terminated[t, stream])


def test_only_dark_rooms_with_several_tasks_and_plain_actions_have_moving_goals() -> None:
    env = room()
    assert diagnostic.can_move(env, env.all_tasks()) and not diagnostic.can_move(env, env.all_tasks()[:1])
    for other in (make() for name, make in WORLDS.items() if name not in ("terminating room", "classic room")):
        assert not diagnostic.can_move(other, other.all_tasks()[:3])
        assert diagnostic.others_first(other, other.all_tasks()[:3], {}) == {}
    assert moving(torch.tensor([[3], [5], [7]])).tolist() == [[3, 5], [5, 7], [7, 3]]
    assert MovedGoal(env, 2).all_tasks().shape == (80, 2)


# ---- references that forget


@needs("searchers")
@pytest.mark.parametrize("name", ["searcher", "covering plan", "persistent walk with goal memory"])
def test_references_forget_a_goal_that_has_moved(name: str) -> None:
    """They visit the old goal once more, and end at the new one by a shortest path."""
    env = room(size=4, max_episode_steps=12)
    tasks = torch.tensor([[0], [15], [3]])
    found, played = play_episodes(references_of(env)[name], MovedGoal(env, 60), moving(tasks), 4, 120, seed=0)
    assert found.success[..., [59, 119]].all()
    old = diagnostic.other_goal_first(played, moving(tasks)[:, 1], tasks[:, 0], 120)
    assert old[..., 60].all() and not old[..., 119].any()
    distance = [abs(cell // 4 - 2) + abs(cell % 4 - 2) for cell in moving(tasks)[:, 1].tolist()]
    assert found.steps_to_goal[..., -1].mean(1) == pytest.approx(distance)


def test_the_model_and_references_with_a_memory_are_played() -> None:
    env = room()
    learners = references_of(env)
    assert list(diagnostic.movers(Mock(), learners)) == ["model", *learners]
    assert list(diagnostic.movers(Mock(), {"random": Chance(env.spec)})) == ["model"]


# ---- which goal comes first


@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
@settings(max_examples=20)
def test_the_first_visit_by_loops(seed: int, num_tasks: int, num_streams: int, num_episodes: int) -> None:
    generator, num_steps = torch.Generator().manual_seed(seed), 40
    cells = torch.randint(4, (num_steps, num_tasks * num_streams), generator=generator)
    ends = torch.rand(cells.shape, generator=generator) < 0.25
    goals, others = torch.randint(4, (2, num_tasks), generator=generator)
    zero = torch.zeros_like(cells)
    played = Rollout(zero, zero, zero, cells, zero, ends, zero.bool(), zero)
    found = diagnostic.other_goal_first(played, goals, others, num_episodes)
    assert found.shape == (num_tasks, num_streams, num_episodes)
    for task, stream in np.ndindex(num_tasks, num_streams):
        episodes: list[list[int]] = [[]]
        row = task * num_streams + stream
        for cell, end in zip(cells[:, row].tolist(), ends[:, row].tolist(), strict=True):
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
    shown = {"moved goal: model": up, "other_task": left, "blank": left}
    walks = {
        name: (adaptation, Rollout(zero, zero, zero, cells, zero, ends, ends, zero)) for name, cells in shown.items()
    }
    found = diagnostic.others_first(env, tasks, walks)
    assert list(found) == ["moved goal: model", "other_task"]
    assert found["moved goal: model"][:, 0, 0].tolist() == [1, 0]  # the first goal of task 0 is above
    assert found["other_task"][:, 0, 0].tolist() == [1, 0]


# ---- numbers, table and picture

OPTIONS = load_config(["evaluation.num_bootstrap=200"]).evaluation


def setting_of(env: TensorEnv, num_tasks: int) -> Setting:
    """Setting of an evaluation on the first tasks."""
    exact = exact_references(env, env.all_tasks()[:num_tasks])
    return Setting({"held_out": exact}, "1", False)


def test_what_is_left_of_a_goal_that_moved() -> None:
    """24 episodes, the goal moves after 12: the old one is visited until episode 20, the new one found from 21 on."""
    success, misled = np.ones((2, 3, 24)), np.zeros((2, 3, 24))
    success[..., 12:20], misled[..., :20] = 0, 1
    success[0, 0, 21] = 0
    played = Adaptation(success, success, np.full_like(success, 5), np.full_like(success, 5))
    ours = Adaptation(success, np.ones((2, 3, 24)), np.full_like(success, 2), np.full_like(success, 2))
    runs = {0: {"held_out": ours, "other_task": ours, "moved goal: model": played}}
    setting, visits = setting_of(room(size=3), 2), {"moved goal: model": misled, "other_task": misled}
    found = summarise(runs, setting, OPTIONS, 0, [{"other_goal_first": visits}])
    moved = found["moved_goal"]["model"]
    assert found["protocol"]["goal_moves_after"] == 12 and "moved goal: model" not in found["curves"]
    assert moved["final"]["success_10_after_move"]["mean"] == pytest.approx(5 / 6)
    assert moved["final"]["other_goal_first_10_after_move"]["mean"] == 0
    assert moved["curves"]["other_goal_first"]["mean"] == [1] * 20 + [0] * 4
    assert moved["final"]["success"]["mean"] == pytest.approx((3 + 5 / 6) / 6)
    assert "first_success" not in moved["curves"] and "area" not in moved["final"]
    misleading = found["ablations"]["other_task"]
    assert misleading["final"]["other_goal_first"]["mean"] == pytest.approx(2 / 6)
    assert "other_goal_first_10_after_move" not in misleading["final"]
    header, _, row = diagnostic.moved_table(found["moved_goal"]).splitlines()
    assert header.startswith("goal moves after episode 12, success at")
    assert " ".join(row.split()) == "model 1.000 0.000 0.000 0.000 0.833 0.639 1.000 1.000 1.000 0.000"
    short_one = Adaptation(*(column[..., :8] for column in played))
    short = summarise({0: {"held_out": short_one, "moved goal: model": short_one}}, setting, OPTIONS, 0)
    assert "success_10_after_move" not in short["moved_goal"]["model"]["final"]
    header, _, row = diagnostic.moved_table(short["moved_goal"]).splitlines()  # four episodes come after the move
    assert header.split()[7:11] == ["4", "5", "6", "7-8"] and row.split()[-2:] == ["-", "-"]
    shorter = {"model": {"curves": {"success": {"mean": [0.0, 0.5, 1.0]}}, "final": {"success": {"mean": 1.0}}}}
    header, _, row = diagnostic.moved_table(shorter).splitlines()  # episode 3 is the last quarter
    assert header.split()[7:] == ["1", "2", "3", "old", "first", "2", "old", "first", "3"]
    assert row.split() == ["model", "0.000", "0.500", "1.000", "-", "-"]


def test_a_moved_goal_has_two_panels_and_a_line_at_the_move() -> None:
    config = load_config(["env.size=3", "evaluation.num_bootstrap=100"])
    env, names = make_env(config.env), ("moved goal: model", "moved goal: searcher")
    found, _ = play_episodes(Chance(env.spec), env, env.all_tasks()[:3], 2, 4, seed=0)
    played, early = {"held_out": found} | dict.fromkeys(names, found), np.linspace(0, 1, 24).reshape(3, 2, 4)
    visits = [{"other_goal_first": dict.fromkeys(names, early)}]
    results = summarise({0: played}, setting_of(env, 3), config.evaluation, 0, visits)
    figure = diagnostic.MovedGoalDiagnostic().figures(results, ["searcher"])["moved_goal"]
    assert len(figure.axes) == 2 and "episode 2" in figure.get_suptitle()
    for axes, expected in zip(figure.axes, (found.success, early), strict=True):
        lines = [line.get_xydata() for line in axes.lines]
        assert any(np.allclose(line[:, 0], 2.5) for line in lines)
        means = expected.mean((0, 1))
        assert sum(len(line) == 4 and np.allclose(line[:, 1], means) for line in lines) == len(names)


def test_results_of_another_form_are_refused(tmp_path: Path) -> None:
    write_results(tmp_path, moved_goal={"model": {"curves": {}}})
    with pytest.raises(PipelineError, match=r"results\.json has unexpected content"):
        read_results(tmp_path)
