"""Curves of the first success beside those of an evaluation, and their table."""

from typing import Any

import numpy as np
import pytest

from icrl.app.compose import load_config
from icrl.evaluation.in_context import Adaptation
from icrl.evaluation.protocol import Setting, summarise
from icrl.extensions.first_success.diagnostic import FirstSuccess, at_risk, first_success_figure, first_success_table

OPTIONS = load_config(["evaluation.num_bootstrap=200"]).evaluation


def adaptation() -> Adaptation:
    """Two tasks, three streams, eight episodes: task 0 is solved from episode 4 on, task 1 never."""
    success = np.zeros((2, 3, 8))
    success[0, :, 3:] = 1
    return Adaptation(success * 5, success, np.where(success > 0, 4, 20).astype(float), np.full_like(success, 20))


def report(success: list[float], *runs: Adaptation, **others: Adaptation) -> dict[str, Any]:
    """Numbers of an evaluation of `runs`, where each episode of random play has these chances of a success."""
    exact = {
        "random": {"returns": success, "success": success, "steps_to_goal": [18.0, 16.0]},
        "optimum": {"returns": [6.0, 1.0], "success": [1.0, 1.0], "steps_to_goal": [2.0, 4.0]},
    }
    setting = Setting({"held_out": exact, "train": exact}, "1", False)
    return summarise({seed: {"held_out": run, **others} for seed, run in enumerate(runs)}, setting, OPTIONS, 0)


def test_each_policy_has_its_curves() -> None:
    found = report([0.25, 0.5], adaptation(), blank=adaptation(), **{"temperature 0": adaptation()})
    ours = found["curves"]["model, held-out tasks"]
    for one in (ours, found["ablations"]["blank"]["curves"], found["decodings"]["0"]["curves"]):
        assert (
            one["first_success"]["mean"] == [0, 0, 0, 0.5, 0, 0, 0, 0] and one["after_first_success"]["mean"] == [1] * 4
        )
    for final in (found["final"]["held_out"], found["ablations"]["blank"]["final"], found["decodings"]["1"]["final"]):
        assert final["success_after_first"]["mean"] == 1
    random = found["curves"]["random"]
    assert random["first_success"]["mean"][:2] == pytest.approx([0.375, (0.25 * 0.75 + 0.5 * 0.5) / (0.75 + 0.5)])
    assert random["after_first_success"]["mean"][-1] == pytest.approx((0.25 * 0.25 + 0.5 * 0.5) / 0.75)  # 7 after it


def test_where_no_policy_succeeds_there_are_none() -> None:
    never = Adaptation(*np.zeros((4, 2, 3, 8)))
    found = report([0.0, 0.0], never)
    found["curves"].pop("optimum")
    assert "first_success" in found["curves"]["random"]  # beside an optimum that succeeds
    diagnostic, results = FirstSuccess(), {"curves": {"random": {"success": {"mean": [0.0]}}}}
    diagnostic.add(results, None)  # pyrefly: ignore
    assert results["curves"]["random"].keys() == {"success"}


def test_the_table_and_the_line_below_it() -> None:
    found = report([1.0, 1.0], adaptation(), random=adaptation())
    del found["curves"]["random"]["first_success"]  # as an earlier version wrote it
    header, _, model, best = first_success_table(found["curves"]).splitlines()
    assert " ".join(header.split()) == "first success in episode 1 2 3 5 10 1 after 2 after 5 after"
    assert model.split() == ["model,", "held-out", "tasks", *["0.000"] * 4, "-", "1.000", "1.000", "-"]
    assert best.split() == ["optimum", "1.000", *"----", *["1.000"] * 3]
    told = FirstSuccess().tables(found)[1]
    assert told.startswith("success of the model, held-out tasks after the first success") and told.endswith("1.000]")


def test_the_picture_ends_where_few_streams_are_left() -> None:
    found = report([0.25, 0.5], adaptation())["curves"]
    assert at_risk(found["random"]["first_success"])["mean"] == found["random"]["first_success"]["mean"][:6]
    left, right = first_success_figure(found, ["random", "optimum"]).axes
    assert left.get_ylabel() == "first success, where none came before" and right.get_ylabel() == "success"
    found = report([0.25, 0.5], Adaptation(*np.zeros((4, 2, 3, 8))))["curves"]  # never a success: nothing is kept
    assert len(first_success_figure(found, ["random", "optimum"]).axes) == 1
