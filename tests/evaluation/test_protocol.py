"""Numbers and texts of an evaluation, against numbers worked out by hand and plain loops."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from adaptations import OPTIONS, adaptation, exact, solving
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import room

from icrl.evaluation import protocol, references
from icrl.evaluation.in_context import Adaptation
from icrl.evaluation.protocol import Setting, decoding_name, summarise
from icrl.evaluation.report import all_curves, probes_of
from icrl.evaluation.setup import setting_of
from icrl.evaluation.tables import summary, table
from icrl.rl.statistics import bootstrap_means, percentile_interval
from icrl.spaces import discrete_spec


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the numbers of extensions."""
    monkeypatch.setattr(protocol, "diagnostics", list)


SPEC = discrete_spec(1, 2, (0.0, 1.0), 0, 1)


EXACT = exact([0.5, 0.0], [6.0, 1.0])  # of the two tasks below


def paying(returns: Any) -> Adaptation:
    """Episodes with these returns `[G, S, E]`, successes if they are at least 1."""
    values = np.array(returns, float)
    return Adaptation(values, (values >= 1).astype(float), np.full_like(values, 2), np.full_like(values, 2))


def report(*runs: Adaptation, references: Any = EXACT, regrets: bool = False, **others: Adaptation) -> dict[str, Any]:
    """Numbers of runs with the seeds 0, 1, ...; `others` are played in each."""
    setting = Setting({"held_out": references, "train": references}, "1", regrets)
    return summarise({seed: {"held_out": run, **others} for seed, run in enumerate(runs)}, setting, OPTIONS, 0)


def final(*runs: Adaptation, **others: Any) -> dict[str, Any]:
    return report(*runs, **others)["final"]["held_out"]


def test_curves_and_final_results_by_hand() -> None:
    found = report(adaptation())
    curves, last = found["curves"]["model, held-out tasks"], found["final"]["held_out"]
    assert curves["success"]["mean"] == [0, 0, 0, 0.5, 0.5, 0.5, 0.5, 0.5]
    assert curves["returns"]["mean"][-1] == 2.5
    assert curves["steps_to_goal"]["mean"] == [20, 20, 20, 12, 12, 12, 12, 12]
    assert curves["fraction_of_optimum"]["mean"][-1] == pytest.approx(5 / 6 / 2)
    for curve in curves.values():
        assert set(curve) == {"mean", "low", "high"}
        assert (np.array(curve["low"]) <= curve["mean"]).all() and (np.array(curve["mean"]) <= curve["high"]).all()
    assert (curves["success"]["low"][-1], curves["success"]["high"][-1]) == (0, 1)  # two tasks: anything may be
    assert last["success"]["mean"] == last["fraction_solved"]["mean"] == 0.5  # over the last quarter, two episodes
    assert last["success_per_task"] == [1.0, 0.0] and last["steps_to_goal"]["mean"] == 12
    assert last["fraction_of_optimum"]["mean"] == pytest.approx(5 / 12)
    assert final(paying([[[0, 0, 0, 0, 0, 0, 8, 4]]]), references=exact([0], [8]))["returns"]["mean"] == 6


@pytest.mark.parametrize(
    ("num_solved", "num_tasks", "low", "high"),
    [(23, 23, 0.8518, 1), (0, 10, 0, 0.3085), (22, 23, 0.7805, 0.9989)],
)
def test_solved_tasks_have_the_exact_interval(num_solved: int, num_tasks: int, low: float, high: float) -> None:
    """Of Clopper and Pearson. Success has it where all tasks are solved or none is; else resamples know both kinds."""
    found = final(solving(num_solved, num_tasks), references=exact([0] * num_tasks, [1] * num_tasks))
    for name in ("fraction_solved", "fraction_solved_90"):
        assert (found[name]["low"], found[name]["high"]) == pytest.approx((low, high), abs=5e-5)
    same = num_solved in (0, num_tasks)
    assert ((found["success"]["low"], found["success"]["high"]) == pytest.approx((low, high), abs=5e-5)) == same
    if num_solved != num_tasks:
        assert found["success"]["low"] <= found["success"]["mean"] <= found["success"]["high"]


def test_a_few_lost_episodes_do_not_make_a_share_more_certain() -> None:
    """One or four episodes of 40 are lost, on a task that is still solved at .9: the low end stays that of 23 of 23
    tasks. If a task fails more often, resamples hold it, and their interval stands. Likewise if few are won."""
    references = exact([0] * 23, [1] * 23)
    for lost, low in ((1, 0.8518), (4, 0.8518), (12, 0.9565)):
        played = solving(23, 23, num_streams=20)
        played.success[0, :lost, -1] = 0
        found = final(played, references=references)["success"]
        assert found["low"] == pytest.approx(low, abs=0.005) and found["high"] == 1
        won = final(played._replace(success=1 - played.success), references=references)["success"]
        assert (won["low"], won["high"]) == pytest.approx((0, 1 - found["low"]))


def test_runs_on_the_same_tasks_are_no_further_draws_and_splits_are() -> None:
    """Three runs on 23 tasks tell of 23; on two splits with 23 tasks each, 46, or fewer if they share some."""
    references = {"held_out": exact([0] * 23, [1] * 23)}
    runs = {seed: {"held_out": solving(23, 23)} for seed in range(4)}
    for setting, low in (
        (Setting(references, "1", False), 0.8518),
        (Setting(references, "1", False, splits=[0, 0, 1, 1]), 0.9229),
        (Setting(references, "1", False, splits=[0, 0, 1, 1], num_different={"held_out": 23}), 0.8518),
    ):
        found = summarise(runs, setting, OPTIONS, 0)["final"]["held_out"]
        assert ("success_per_task" in found) == (not setting.splits)  # a task of one split is another in the next
        for name in ("success", "fraction_solved"):
            assert found[name]["low"] == pytest.approx(low, abs=5e-5) and found[name]["high"] == 1
    mixed = {0: {"held_out": solving(23, 23)}, 1: {"held_out": solving(22, 23)}}
    found = summarise(mixed, Setting(references, "1", False), OPTIONS, 0)["final"]["held_out"]["fraction_solved"]
    assert found["low"] <= 0.7805 and found["high"] == 1  # t of one degree of freedom, and 22 of 23


def test_intervals_stay_within_what_is_possible() -> None:
    """Two tasks that differ much between two runs: t of one degree of freedom leaves every scale. Where the optimum is
    a bound, steps are not below its own and returns not above."""
    references = exact([0.0, 0.0], [2.0, 2.0])
    good, bad = Adaptation(*(np.full((2, 2, 8), value) for value in (2.0, 1, 3, 3))), solving(0, 2)
    runs = {0: {"held_out": good}, 1: {"held_out": bad}}
    possible = {"steps_to_goal": (0.0, 20.0), "returns": (0.0, 10.0)}
    for bound, steps, returns in ((False, (0, 20), (0, 10)), (True, (3, 20), (0, 2))):
        setting = Setting({"held_out": references}, "1", False, possible, bound)
        numbers = summarise(runs, setting, OPTIONS, 0)
        for section in (numbers["final"]["held_out"], numbers["curves"]["model, held-out tasks"]):
            for name, limits in (("steps_to_goal", steps), ("success", (0, 1)), ("returns", returns)):
                assert np.ravel([section[name]["low"], section[name]["high"]])[[0, -1]] == pytest.approx(limits)
    assert numbers["final"]["held_out"]["fraction_of_optimum"]["high"] == 1
    assert numbers["protocol"]["possible"] == {"steps_to_goal": [0, 20], "returns": [0, 10]}
    once = paying(np.ones((2, 1, 8)))  # in a world whose episodes end with the first reward
    unbound = replace(setting, optimum_is_bound=False)
    found = summarise({0: {"held_out": once}}, unbound, OPTIONS, 0)["final"]["held_out"]
    assert found["returns"]["low"] == found["returns"]["high"] == 1
    lucky = summarise({0: {"held_out": paying(np.full((2, 1, 8), 3.0))}}, setting, OPTIONS, 0)["final"]["held_out"]
    assert lucky["returns"]["high"] == lucky["returns"]["mean"] == 3  # of a world in which luck pays


def test_what_is_measured_depends_on_the_world() -> None:
    """With random starts an episode may be shorter than the mean of the best from all starts. A world of one's own may
    have a planner, best actions as successes, and rewards that it does not list: regrets are unknown there."""
    worlds = [room(size=3, random_start=random_start) for random_start in (False, True, False)]
    worlds[2].spec = worlds[2].spec._replace(success="best_action", reward_values=())
    parts: Any = {"tasks": {}, "policy": SimpleNamespace(temperature=1.0, sample_probability=1.0)}
    fixed, random, own = (setting_of(SimpleNamespace(env=env, **parts)) for env in worlds)
    assert fixed.optimum_is_bound == bool(references.EXACT) and not random.optimum_is_bound
    assert worlds[2].has_planner and not own.regrets


def test_a_task_counts_as_solved_by_its_last_quarter_of_episodes() -> None:
    """Of four tasks one is solved in all ten of its last episodes, one in nine, one in eight, one in none."""
    last = np.array([[1] * 10, [1] * 9 + [0], [1] * 8 + [0] * 2, [0] * 10])
    whole = np.concatenate([1 - last, 1 - last, 1 - last, last], axis=1)[:, None]
    found = final(paying(whole), references=exact([0] * 4, [1] * 4))
    assert found["fraction_solved_90"]["mean"] == 0.5 and found["fraction_solved"]["mean"] == 0.75


@given(st.integers(0, 10**6), st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.integers(2, 9))
@settings(max_examples=20)
def test_measures_by_loops(seed: int, num_runs: int, num_tasks: int, num_streams: int, num: int) -> None:
    """Area, and episodes to 90% of the optimum."""
    rng = np.random.default_rng(seed)
    random, optimum = rng.random(num_tasks), 1 + rng.random(num_tasks)
    runs = [rng.random((num_tasks, num_streams, num)) * 2 for _ in range(num_runs)]
    found = final(*map(paying, runs), references=exact(random.tolist(), optimum.tolist()))
    area, curve = 0.0, [0.0] * num
    for run in runs:
        for task, stream in np.ndindex(num_tasks, num_streams):
            row = [float(value) for value in run[task, stream]]
            for episode, value in enumerate(row):
                area += (value - random[task]) / (optimum[task] - random[task]) / num
                curve[episode] += value / (num_runs * num_tasks * num_streams)
    assert found["area"]["mean"] == pytest.approx(area / (num_runs * num_tasks * num_streams))
    windows = [curve[episode : episode + 3] for episode in range(num - min(3, num) + 1)]
    reached = [n for n, window in enumerate(windows, 1) if sum(window) / len(window) >= 0.9 * optimum.mean()]
    assert found["episodes_to_90"]["episode"] == (reached[0] if reached else None)


def test_the_share_of_resamples_that_reach_the_optimum() -> None:
    """A task that is near it from its third episode on, and one that never is: only resamples of the first alone get
    there, a quarter of them. One good episode is no more than luck."""
    one, never = [[0, 0, 2, 2, 2, 2]] * 2, [[0, 0, 0, 0, 0, 0]] * 2
    near = final(paying([one, never]), references=exact([0, 0], [2, 2]))["episodes_to_90"]
    assert near["episode"] is None and near["low"] == near["high"] == 3
    assert 0.15 < near["share_reached"] < 0.35
    always = final(paying([one, one]), references=exact([0, 0], [2, 2]))["episodes_to_90"]
    assert always == {"episode": 3, "low": 3, "high": 3, "share_reached": 1}
    lost = final(paying([never]), references=exact([0], [2]))["episodes_to_90"]
    assert lost == {"episode": None, "low": None, "high": None, "share_reached": 0}
    assert final(paying([[[0, 2, 0, 0, 0, 0]]]), references=exact([0], [2]))["episodes_to_90"]["episode"] is None


def test_each_number_has_the_interval_it_would_have_by_itself() -> None:
    """Resamples are shared between measures, even if some leave out tasks."""
    rng = np.random.default_rng(0)
    runs, optimum = [paying(rng.random((4, 3, 8)) * 2) for _ in range(2)], np.array([2.0, 0.0, 4.0, 3.0])
    found = report(*runs, references=exact([0.5, 0.0, 0.5, 1.0], optimum.tolist()))
    returns, kept, curves = np.stack([run.returns for run in runs]), optimum > 0, found["curves"]
    for number, values in (
        (curves["model, held-out tasks"]["returns"], returns),
        (found["final"]["held_out"]["returns"], returns[..., -2:].mean(-1)),
        (curves["model, held-out tasks"]["fraction_of_optimum"], returns[:, kept] / optimum[kept, None, None]),
    ):
        low, high = percentile_interval(bootstrap_means(values, 200, 0))
        for name, expected in (("low", low), ("high", high)):
            np.testing.assert_allclose(number[name], expected)


def test_tasks_that_pay_nothing_and_worlds_without_a_planner_have_no_fraction() -> None:
    found = final(paying([[[1, 1]], [[1, 1]], [[1, 1]]]), references=exact([-2, 0, 1], [0, 2, 1]))
    assert found["fraction_of_optimum"]["mean"] == pytest.approx((1 / 2 + 1) / 2)
    assert found["area"]["mean"] == pytest.approx((3 / 2 + 1 / 2) / 2)  # the last optimum equals chance
    played = report(adaptation(), references={}, random=adaptation())
    assert set(played["curves"]) == {"model, held-out tasks", "random"}
    for nothing in (final(paying([[[0, 0]]]), references=exact([0], [0])), played["final"]["held_out"]):
        assert not {"fraction_of_optimum", "area", "episodes_to_90"} & set(nothing)
    assert len(summary(played, SPEC).splitlines()) == 2


def test_regrets_by_hand() -> None:
    """The first task misses 6 in each of three episodes and 1 in each of five, the second 1 in each of eight."""
    found = report(adaptation(), regrets=True)
    expected = [7 / 2, 14 / 2, 21 / 2, 23 / 2, 25 / 2, 27 / 2, 29 / 2, 31 / 2]  # 6 + 1, 12 + 2, 18 + 3, 19 + 4, ...
    assert found["curves"]["model, held-out tasks"]["regret"]["mean"] == expected
    assert found["final"]["held_out"]["regret"]["mean"] == (23 + 8) / 2
    assert found["final"]["held_out"]["regret_per_task"] == [23, 8]
    assert "regret" not in final(adaptation()) and "regret" not in report(adaptation())["curves"]["random"]


def test_exact_references_are_the_same_in_each_episode() -> None:
    chance = {"returns": [1.0, 0.5], "success": [0.25, 0.5], "steps_to_goal": [18.0, 16.0]}
    references = {"random": chance, "optimum": EXACT["optimum"]}
    found = report(adaptation(), references=references, regrets=True)["curves"]["random"]
    same = {"success": 0.375, "returns": 0.75, "steps_to_goal": 17, "fraction_of_optimum": (1 / 6 + 1 / 2) / 2}
    expected = {name: [value] * 8 for name, value in same.items()}
    expected["regret"] = [2.75 * number for number in range(1, 9)]
    for name, curve in found.items():
        assert curve["low"] == curve["mean"] == curve["high"] == pytest.approx(expected[name])


def test_the_section_of_each_policy() -> None:
    other, life = paying(np.ones((2, 1, 8))), "A2C, training tasks, start of life"
    probes = {
        "blank": "model, rewards blanked",
        "shuffled": "model, context shuffled",
        "other_task": "model, another task's context",
    }
    setting = Setting({"held_out": EXACT, "train": exact([0, 0], [4, 4])}, "1", True)
    names = ("train", life, "searcher", "temperature 0", "temperature 0.5", *probes)
    found = summarise({0: {"held_out": adaptation()} | dict.fromkeys(names, other)}, setting, OPTIONS, 0)
    ours = ["model, held-out tasks", "model, training tasks"]
    assert list(found["curves"]) == [*ours, life, "searcher", "random", "optimum"]
    assert list(found["final"]) == ["held_out", "train"] and list(found["decodings"]) == ["1", "0", "0.5"]
    assert found["decodings"]["1"]["final"] == found["final"]["held_out"]
    assert found["final"]["train"]["fraction_of_optimum"]["mean"] == 0.25  # with references of their own
    assert found["curves"][life]["fraction_of_optimum"]["mean"] == [0.25] * 8
    assert {name: probe["label"] for name, probe in found["ablations"].items()} == probes
    assert found["ablations"]["blank"]["curves"]["success"]["mean"] == [1] * 8
    assert found["protocol"]["num_streams"]["held_out"] == 3 and found["protocol"]["num_streams"]["blank"] == 1
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert list(probes_of(found)) == ["model, greedy", "model, temperature 0.5", *probes.values()]
    assert list(all_curves(found)) == [*ours, *probes_of(found), life, "searcher", "random", "optimum"]


def test_decodings_have_names() -> None:
    given = ((1.0, 1.0), (0.5, 1.0), (0.7, 0.0), (1.5, 0.25))
    assert [decoding_name(*one) for one in given] == ["1", "0.5", "0", "1.5, with probability 0.25"]


def test_the_table_has_a_row_per_policy_and_the_right_episodes() -> None:
    header, rule, model, chance, best = table(report(adaptation(), regrets=True)["curves"]).splitlines()
    names = "success at episode, 1, 5, 7-8, steps to goal 7-8, return 7-8, regret 1-8"
    assert header.split() == names.replace(",", "").split()
    assert model.split() == ["model,", "held-out", "tasks", "0.000", "0.500", "0.500", "12.00", "2.50", "15.50"]
    assert chance.split() == ["random", "1.000", "1.000", "1.000", "3.00", "0.25", "26.00"]
    assert best.split()[-1] == "0.00" and len(rule) == len(header) == len(model) == len(chance)
    few = {key: {"mean": [1.0] * 4} for key in ("success", "steps_to_goal", "returns")}
    assert table({"model": few}).split()[3:9] == ["1", "4", "steps", "to", "goal", "4"]


def test_the_lines_below_the_table() -> None:
    def numbers() -> list[list[str]]:
        lines = summary(found, SPEC).splitlines()
        return [re.findall(r"[0-9.]+%?", line.rpartition(": ")[2].replace(", 95% interval", "")) for line in lines]

    found = report(adaptation(), regrets=True)
    last = found["final"]["held_out"]
    solved_tasks, *others, near = numbers()
    assert solved_tasks == ["50%", "2", "50%"] and near == []  # never
    fractions = [["0.500", "0.000", "1.000"], ["0.417", "0.000", "0.833"], ["0.239", "0.000", "0.477"]]
    assert others == [*fractions, ["15.50", "8.00", "23.00"]]  # success, return, area, and regret
    last["episodes_to_90"].update(episode=12, low=9.0, high=15.2, share_reached=0.987)
    assert numbers()[-1] == ["12", "9", "15", "99%"]
    del last["fraction_solved_90"]  # earlier versions did not measure it
    assert numbers()[0] == ["50%", "2"]


def test_steps_and_areas_of_tasks_that_are_all_solved_leave_room_for_others() -> None:
    """Each in the fewest steps of its own: of other tasks, up to 0.1482 may take all 20, and gain nothing."""
    steps = np.arange(1.0, 24.0) % 8 + 1
    one = np.ones((23, 2, 8))
    played = Adaptation(one, one, one * steps[:, None, None], one * 20)
    given = {"success": [1.0] * 23, "steps_to_goal": steps.tolist(), "returns": [1.0] * 23}
    references = {"optimum": given, "random": given | {"returns": [0.2] * 23}}
    possible = {"steps_to_goal": (1.0, 20.0), "returns": (0.0, 20.0)}
    setting = Setting({"held_out": references}, "1", False, possible, True)
    found = summarise({0: {"held_out": played}}, setting, OPTIONS, 0)["final"]["held_out"]
    mean, part = steps.mean(), 1 - 0.8518
    assert found["success"]["low"] == pytest.approx(1 - part, abs=5e-5)
    assert found["steps_to_goal"]["high"] == pytest.approx(mean + (20 - mean) * part, abs=2e-3)
    assert found["area"]["low"] == pytest.approx(1 - (1 + 0.2 / 0.8) * part, abs=5e-4)


def test_one_draw_tells_nothing_of_others() -> None:
    found = final(solving(1, 1, num_streams=1), references=exact([0], [1]))
    assert (found["success"]["low"], found["success"]["mean"], found["success"]["high"]) == (0, 1, 1)
