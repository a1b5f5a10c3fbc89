"""Numbers, table and picture of a goal that moves, and refusal of damaged results."""

from pathlib import Path

import numpy as np
import pytest
from results import write_results
from worlds import room

from icrl.app.compose import load_config
from icrl.contracts import PipelineError
from icrl.envs import make_env
from icrl.envs.core import TensorEnv
from icrl.envs.exact import Chance
from icrl.evaluation.in_context import Adaptation, play_episodes
from icrl.evaluation.protocol import Setting, exact_numbers, summarise
from icrl.evaluation.references import exact_references
from icrl.evaluation.report import read_results
from icrl.extensions.moved_goal import pictures
from icrl.extensions.moved_goal.diagnostic import MovedGoalDiagnostic, moved_table
from icrl.plots.figures import adaptation_figure

OPTIONS = load_config(["evaluation.num_bootstrap=200"]).evaluation


def setting_of(env: TensorEnv, num_tasks: int) -> Setting:
    """Setting of an evaluation on the first tasks."""
    exact = exact_numbers(exact_references(env, env.all_tasks()[:num_tasks]))
    return Setting({"held_out": exact}, "1", False)


def test_what_is_left_of_a_goal_that_moved() -> None:
    """24 episodes, the goal moves after 12: the old one is visited until episode 20, the new one found from 21 on."""
    success, misled = np.ones((2, 3, 24)), np.zeros((2, 3, 24))
    success[..., 12:20], misled[..., :20] = 0, 1
    success[0, 0, 21] = 0
    played = Adaptation(success, success, np.full_like(success, 5), np.full_like(success, 5))
    ours = Adaptation(success, np.ones((2, 3, 24)), np.full_like(success, 2), np.full_like(success, 2))
    runs = {0: {"held_out": ours, "other_task": ours, "moved goal: model": played}}
    setting = Setting(
        {"held_out": exact_numbers(exact_references(room(size=3), room(size=3).all_tasks()[:2]))}, "1", False
    )
    found = summarise(
        runs, setting, OPTIONS, 0, [{"other_goal_first": {"moved goal: model": misled, "other_task": misled}}]
    )
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
    header, _, row = moved_table(found["moved_goal"]).splitlines()
    assert header.startswith("goal moves after episode 12, success at")
    assert row.split() == [
        "model",
        "1.000",
        "0.000",
        "0.000",
        "0.000",
        "0.833",
        "0.639",
        "1.000",
        "1.000",
        "1.000",
        "0.000",
    ]
    short_one = Adaptation(*(column[..., :8] for column in played))
    short = summarise({0: {"held_out": short_one, "moved goal: model": short_one}}, setting, OPTIONS, 0)
    assert "success_10_after_move" not in short["moved_goal"]["model"]["final"]
    header, _, row = moved_table(short["moved_goal"]).splitlines()  # four episodes come after the move
    assert header.split()[7:11] == ["4", "5", "6", "7-8"] and row.split()[-2:] == ["-", "-"]


def test_a_moved_goal_has_two_panels_and_a_line_at_the_move(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(["env.size=3", "evaluation.num_bootstrap=100"])
    env, names = make_env(config.env), ("moved goal: model", "moved goal: searcher")
    tasks = env.all_tasks()[:3]
    found, _ = play_episodes(Chance(env.spec), env, tasks, 2, 4, seed=0)
    setting = setting_of(env, 3)
    played, early = {"held_out": found} | dict.fromkeys(names, found), np.linspace(0, 1, 24).reshape(3, 2, 4)
    results = summarise({0: played}, setting, config.evaluation, 0, [{"other_goal_first": dict.fromkeys(names, early)}])
    drawn = []
    draw = lambda panels, **texts: drawn.append((panels, texts)) or adaptation_figure(panels, **texts)  # noqa: E731
    monkeypatch.setattr(pictures, "adaptation_figure", draw)
    figure = MovedGoalDiagnostic().figures(results, ["searcher"])["moved_goal"]
    panels, texts = drawn[-1]
    assert texts == {"title": "The goal moves after episode 2", "change_after": 2}
    assert [([*panel.curves], [*panel.references]) for panel in panels] == [(["model"], ["searcher"])] * 2
    np.testing.assert_allclose(panels[0].curves["model"]["mean"], found.success.mean((0, 1)))
    np.testing.assert_allclose(panels[1].curves["model"]["mean"], early.mean((0, 1)))
    assert all([2.5, 2.5] in [list(line.get_xdata()) for line in axes.lines] for axes in figure.axes)


def test_results_of_another_form_are_refused(tmp_path: Path) -> None:
    write_results(tmp_path, moved_goal={"model": {"curves": {}}})
    with pytest.raises(PipelineError, match=r"results\.json has unexpected content"):
        read_results(tmp_path)
