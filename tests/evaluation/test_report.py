"""The table, and the lines below it."""

from typing import Any

import numpy as np
import pytest

from icrl.config.compose import load_config
from icrl.contracts import EnvSpec
from icrl.evaluation.in_context import Adaptation
from icrl.evaluation.protocol import Setting, numbers_of
from icrl.evaluation.report import all_curves, coverage_table, probes_of, solved, source_label, summary, table

OPTIONS = load_config(["evaluation.num_bootstrap=200", "evaluation.confidence=0.9"]).evaluation
SPEC = EnvSpec(1, 2, (0.0, 1.0), 0, 1)
RANDOM = {"success": [0.2, 0.2], "returns": [0.1, 0.3], "steps_to_goal": [18.0, 16.0]}
OPTIMUM = {"success": [1.0, 1.0], "returns": [6.0, 1.0], "steps_to_goal": [2.0, 2.0]}


def adaptation() -> Adaptation:
    """Two tasks, three streams, eight episodes: task 0 is solved from episode 4 on, task 1 never."""
    success = np.zeros((2, 3, 8))
    success[0, :, 3:] = 1
    return Adaptation(success * 5, success, np.where(success > 0, 4.0, 20.0), np.full_like(success, 20))


def results(*names: str, regrets: bool = False, planner: bool = True) -> dict[str, Any]:
    exact = {"random": RANDOM, "optimum": OPTIMUM} if planner else {}
    setting = Setting({"held_out": exact, "train": exact}, "1", regrets)
    return numbers_of({0: dict.fromkeys(("held_out", *names), adaptation())}, setting, OPTIONS, 0)


@pytest.mark.parametrize(
    ("name", "label"), [("a2c", "A2C"), ("q_learning", "Q-learning"), ("noise_distillation", "noisy expert")]
)
def test_sources_are_called_as_people_do(name: str, label: str) -> None:
    assert source_label(name) == label


def test_how_a_solved_task_is_called() -> None:
    assert solved(SPEC) == "solved"
    assert solved(SPEC._replace(success="best_action")) == "whose best arm was found"


def test_the_table_has_a_row_per_policy_and_the_right_episodes() -> None:
    text = table(results()["curves"])
    header, _, model, chance, _ = text.splitlines()
    assert header.split() == [
        *["success", "at", "episode", "1", "5", "7-8"],
        *["steps", "to", "goal", "7-8"],
        *["return", "7-8"],
    ]
    assert model.split() == ["model,", "held-out", "tasks", "0.000", "0.500", "0.500", "12.00", "2.50"]
    assert chance.split() == ["random", "0.200", "0.200", "0.200", "17.00", "0.20"]


def test_the_table_shows_regret_where_there_is_one() -> None:
    header, rule, model, chance, best = table(results(regrets=True)["curves"]).splitlines()
    assert header.endswith("regret 1-8") and len(rule) == len(header) == len(model) == len(chance)
    assert model.split()[-1] == "15.50"
    assert chance.split()[-1] == f"{8 * (5.9 + 0.7) / 2:.2f}"
    assert best.split()[-1] == "0.00"


def test_probes_stand_beside_the_model() -> None:
    found = results("train", "searcher", "temperature 0", "temperature 0.5", "blank", "shuffled", "other_task")
    probes = ["model, greedy", "model, temperature 0.5", "model, rewards blanked", "model, context shuffled"]
    probes.append("model, another task's context")
    assert list(probes_of(found)) == probes
    model = ["model, held-out tasks", "model, training tasks"]
    assert list(all_curves(found)) == [*model, *probes, "searcher", "random", "optimum"]
    assert list(all_curves(results())) == ["model, held-out tasks", "random", "optimum"]


def test_the_lines_below_the_table() -> None:
    found = results("searcher", "covering plan")
    final = found["final"]["held_out"]
    lines = summary(found, SPEC).splitlines()
    assert lines[0] == "held-out tasks solved: 50% of 2, 50% in nine of ten of the last episodes"
    low, high = final["success"]["low"], final["success"]["high"]
    assert lines[1] == (
        f"success on held-out tasks over the last episodes: 0.500, 90% interval {low:.3f} to {high:.3f}"
    )
    after = "success on held-out tasks after the first success: 1.000, 90% interval 1.000 to 1.000"
    assert lines.pop(2) == after
    assert lines[2].startswith("fraction of the optimum over the last episodes: 0.417, 90% interval")
    area = ((5 * 5 / 8 - 0.1) / 5.9 + -0.3 / 0.7) / 2
    assert lines[3].startswith(f"area under the curve, from 0 for random to 1 for the optimum: {area:.3f}, 90%")
    assert lines[4] == "return that the searcher has more over all episodes: 0.00, 90% interval 0.00 to 0.00"
    assert lines.pop(5) == lines[4].replace("searcher", "covering plan")
    assert lines[5:] == ["episodes to 90% of the optimum: never"]
    pulls = summary(results(regrets=True), SPEC._replace(success="best_action"))
    assert "held-out tasks whose best arm was found: 50% of 2" in pulls
    assert "regret on held-out tasks over all episodes: 15.50, 90% interval 8.00 to 23.00" in pulls


def test_when_the_optimum_is_reached() -> None:
    found = results()
    near = found["final"]["held_out"]["episodes_to_90"]
    near.update(episode=12, low=9.0, high=15.2, share_reached=0.987)
    line = "episodes to 90% of the optimum: 12, 90% interval 9 to 15 of the 99% of resamples that get there"
    assert summary(found, SPEC).splitlines()[-1] == line
    near.update(episode=None)
    assert summary(found, SPEC).splitlines()[-1] == line.replace("12", "never", 1)


def test_without_a_planner_the_lines_say_less() -> None:
    assert len(summary(results(planner=False), SPEC).splitlines()) == 3


def test_what_an_earlier_version_found_is_shown_without_what_it_did_not_measure() -> None:
    found = results()
    for name in ("fraction_solved_90", "success_after_first"):
        del found["final"]["held_out"][name]
    lines = summary(found, SPEC).splitlines()
    assert lines[0] == "held-out tasks solved: 50% of 2"
    assert not any("first success" in line for line in lines)


def test_a_row_of_coverage_for_each_policy() -> None:
    header, rule, *rows = coverage_table(
        {"plan": {"mean": [0.25, 1.0]}, "model": {"mean": [0.2, 0.34567]}}
    ).splitlines()
    assert header.split()[-2:] == ["1", "2"] and len(rule) == len(header) == len(rows[0])
    assert [row.split() for row in rows] == [["plan", "0.250", "1.000"], ["model", "0.200", "0.346"]]
