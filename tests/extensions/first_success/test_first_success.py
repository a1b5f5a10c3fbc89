"""First success: its hazard and success after it, against plain loops and by hand; their table and picture."""

from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from adaptations import OPTIONS, adaptation
from hypothesis import given, settings
from hypothesis import strategies as st

from icrl.evaluation.in_context import Adaptation
from icrl.evaluation.protocol import Setting, summarise
from icrl.extensions.first_success.diagnostic import FirstSuccess, at_risk, first_success_figure, first_success_table
from icrl.extensions.first_success.measures import LAGS, expected, measures_of
from icrl.plots.style import COLORS


def found_in(success: Any) -> dict[str, dict[str, Any]]:
    return measures_of(np.array(success, float), 100, 0)


def test_hazard_and_what_follows_by_hand() -> None:
    """Four streams: first success in episodes 1, 2 and 2, and none. One forgets for an episode."""
    found = found_in([[[[1, 0, 1, 1], [0, 1, 1, 1], [0, 1, 1, 1], [0, 0, 0, 0]]]])
    hazard = found["curves"]["first_success"]
    assert hazard["mean"] == pytest.approx([1 / 4, 2 / 3, 0, 0])
    assert hazard["at_risk"] == [1, 3 / 4, 1 / 4, 1 / 4]
    assert found["curves"]["after_first_success"]["mean"] == pytest.approx([2 / 3, 1, 1])
    assert found["final"]["success_after_first"]["mean"] == pytest.approx(6 / 7)


def test_there_is_nothing_to_tell_where_all_or_none_succeed() -> None:
    found = found_in([[[[1, 1, 1]]]])
    assert found["curves"]["first_success"]["mean"] == [1] and found["curves"]["first_success"]["at_risk"] == [1]
    assert found["curves"]["after_first_success"]["mean"] == [1, 1]
    found = found_in([[[[0, 0, 0]]]])
    assert found["curves"].keys() == {"first_success"} and not found["final"]
    assert found["curves"]["first_success"]["mean"] == [0, 0, 0]
    assert found_in([[[[0, 1]]]])["curves"].keys() == {"first_success"}  # no episode is left after it


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(2, 14))
def test_measures_by_loops(seed: int, num_runs: int, num_tasks: int, num_streams: int, num_episodes: int) -> None:
    rng = np.random.default_rng(seed)
    success = rng.random((num_runs, num_tasks, num_streams, num_episodes)) < rng.choice([0.1, 0.4])
    hazard: list[list[bool]] = [[] for _ in range(num_episodes)]
    after: list[list[bool]] = [[] for _ in range(LAGS)]
    for row in success.reshape(-1, num_episodes).tolist():
        first = row.index(True) if True in row else num_episodes
        for episode in range(min(first + 1, num_episodes)):
            hazard[episode].append(row[episode])
        for lag, later in enumerate(row[first + 1 : first + 1 + LAGS]):
            after[lag].append(later)
    found = measures_of(success, 100, seed)["curves"]
    for name, outcomes in (("first_success", hazard), ("after_first_success", after)):
        means = [sum(each) / len(each) for each in outcomes if each]
        assert found.get(name, {"mean": []})["mean"] == pytest.approx(means)
        if means:
            ends = np.array(found[name]["low"]), np.array(found[name]["high"])
            assert (ends[0] >= 0).all() and (ends[0] <= ends[1]).all() and (ends[1] <= 1).all()
    total = success[..., 0].size
    assert found["first_success"]["at_risk"] == [len(each) / total for each in hazard if each]


def test_expected_curves_are_means_over_all_outcomes() -> None:
    chances, num_episodes = np.array([0.25, 0.5, 1.0]), 5
    above, below = (np.zeros(2 * num_episodes) for _ in range(2))
    for chance in chances:
        for row in product((0, 1), repeat=num_episodes):
            weight = prod(chance if won else 1 - chance for won in row)
            first = row.index(1) if 1 in row else num_episodes
            for episode in range(min(first + 1, num_episodes)):
                above[episode] += weight * row[episode]
                below[episode] += weight
            for lag, later in enumerate(row[first + 1 :]):
                above[num_episodes + lag] += weight * later
                below[num_episodes + lag] += weight
    found = expected(chances, num_episodes)
    assert found["first_success"]["mean"] == pytest.approx(above[:5] / below[:5])
    assert found["first_success"]["at_risk"] == pytest.approx(below[:5] / 3)
    assert found["after_first_success"]["mean"] == pytest.approx(above[5:9] / below[5:9])
    assert found["after_first_success"]["low"] == found["after_first_success"]["high"]
    assert expected(np.ones(2), 5)["first_success"]["mean"] == [1]
    assert expected(np.zeros(2), 5).keys() == {"first_success"}


# ---- beside the curves of an evaluation


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
    assert " ".join(header.split()) == "first success in episode 1 2 3 5 1 after 2 after 5 after"
    assert model.split() == ["model,", "held-out", "tasks", *["0.000"] * 4, "1.000", "1.000", "-"]
    assert best.split() == ["optimum", "1.000", *"---", *["1.000"] * 3]
    told = FirstSuccess().tables(found)[1]
    assert told.startswith("success of the model, held-out tasks after the first success") and told.endswith("1.000]")


def test_the_picture_ends_where_few_streams_are_left() -> None:
    found = report([0.25, 0.5], adaptation())["curves"]
    assert at_risk(found["random"]["first_success"])["mean"] == found["random"]["first_success"]["mean"][:6]
    left, right = first_success_figure(found, ["random", "optimum"], []).axes
    assert left.get_ylabel() == "first success, where none came before" and right.get_ylabel() == "success"
    model = next(name for name in found if name not in ("random", "optimum"))
    later = first_success_figure(found, ["random", "optimum"], ["left out here", model]).axes[0]
    assert [axes.lines[0].get_color() for axes in (left, later)] == [*COLORS[:2]]  # each policy has one in all pictures
    found = report([0.25, 0.5], Adaptation(*np.zeros((4, 2, 3, 8))))["curves"]  # never a success: nothing is kept
    assert len(first_success_figure(found, ["random", "optimum"], []).axes) == 1
