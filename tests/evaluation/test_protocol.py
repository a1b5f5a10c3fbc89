"""What is reported of played episodes, against numbers worked out by hand and plain loops."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icrl.config.compose import load_config
from icrl.contracts import PipelineError
from icrl.envs.exact import Expectation
from icrl.evaluation.in_context import Adaptation
from icrl.evaluation.measures import after_first, exact_numbers, tail_of
from icrl.evaluation.protocol import (
    DEFINITIONS,
    Setting,
    combined,
    coverage_numbers,
    decoding_name,
    label_of,
    numbers_of,
)
from icrl.evaluation.results import read_results, save_episodes
from icrl.rl.statistics import bootstrap_means, interquartile_mean, percentile_interval
from icrl.runs.files import write_json
from icrl.runs.identity import Identity, write_owned

OPTIONS = load_config(["evaluation.num_bootstrap=200"]).evaluation


def exact(random: list[float], optimum: list[float]) -> dict[str, dict[str, list[float]]]:
    """References whose returns are these; in success and steps they are like any other."""
    rest = {"success": [1.0] * len(random), "steps_to_goal": [3.0] * len(random)}
    return {"random": {"returns": random, **rest}, "optimum": {"returns": optimum, **rest}}


EXACT = exact([0.5, 0.0], [6.0, 1.0])  # of the two tasks below


def adaptation() -> Adaptation:
    """Two tasks, three streams, eight episodes: task 0 is solved from episode 4 on, which pays 5, task 1 never."""
    success = np.zeros((2, 3, 8))
    success[0, :, 3:] = 1
    return Adaptation(success * 5, success, np.where(success > 0, 4, 20).astype(float), np.full_like(success, 20))


def paying(returns: Any) -> Adaptation:
    """Episodes that return so much, `[G, S, E]`, and are successes where it is at least 1."""
    values = np.array(returns, float)
    return Adaptation(values, (values >= 1).astype(float), np.full_like(values, 2), np.full_like(values, 2))


def report(
    *runs: Adaptation,
    references: Mapping[str, Any] = EXACT,
    regrets: bool = False,
    others: Mapping[str, Adaptation] | None = None,
) -> dict[str, Any]:
    """What is said of runs with the seeds 0, 1, ...; `others` are played in each."""
    setting = Setting({"held_out": references, "train": references}, "1", regrets)
    return numbers_of({seed: {"held_out": run, **(others or {})} for seed, run in enumerate(runs)}, setting, OPTIONS, 0)


def final(*runs: Adaptation, **others: Any) -> dict[str, Any]:
    return report(*runs, **others)["final"]["held_out"]


def test_curves_are_means_with_intervals_around_them() -> None:
    curves = report(adaptation())["curves"]["model, held-out tasks"]
    assert curves["success"]["mean"] == [0, 0, 0, 0.5, 0.5, 0.5, 0.5, 0.5]
    assert curves["returns"]["mean"][-1] == 2.5
    assert curves["steps_to_goal"]["mean"] == [20, 20, 20, 12, 12, 12, 12, 12]
    assert curves["fraction_of_optimum"]["mean"][-1] == pytest.approx(5 / 6 / 2)
    for curve in curves.values():
        assert set(curve) == {"mean", "low", "high", "interquartile_mean"}
        for low, mean, high in zip(curve["low"], curve["mean"], curve["high"], strict=True):
            assert low <= mean <= high
    assert (curves["success"]["low"][-1], curves["success"]["high"][-1]) == (0, 1)  # two tasks: anything may be


def test_the_final_result_is_the_last_quarter() -> None:
    found = final(adaptation())
    assert tail_of(8) == 2
    assert found["success"]["mean"] == 0.5
    assert found["success_per_task"] == [1.0, 0.0]
    assert found["fraction_solved"]["mean"] == 0.5
    assert found["steps_to_goal"]["mean"] == 12
    assert found["returns"]["interquartile_mean"] == pytest.approx(2.5)
    assert found["fraction_of_optimum"]["mean"] == pytest.approx(5 / 12)
    assert final(paying([[[0, 0, 0, 0, 0, 0, 8, 4]]]), references=exact([0], [8]))["returns"]["mean"] == 6


def test_a_task_counts_as_solved_if_half_of_its_last_episodes_succeed() -> None:
    """In each run by itself: of two tasks, in one run both are solved and in the other none."""
    half = [[[0, 0, 0, 0, 0, 0, 0, 1]], [[0, 0, 0, 0, 0, 0, 1, 1]]]
    found = final(paying(half), paying(np.zeros((2, 1, 8))))["fraction_solved"]
    assert found["mean"] == 0.5
    assert (found["low"], found["high"]) == (0, 1)
    assert final(paying([[[1, 1, 1, 1, 1, 1, 0, 0]]]), references=exact([0], [1]))["fraction_solved"]["mean"] == 0


def test_solved_nine_times_of_ten() -> None:
    """Of four tasks one is solved in all ten of its last episodes, one in nine, one in eight, one in none."""
    last = np.array([[1] * 10, [1] * 9 + [0], [1] * 8 + [0] * 2, [0] * 10])
    whole = np.concatenate([np.zeros((4, 30)), last], axis=1)[:, None]
    found = final(paying(whole), references=exact([0] * 4, [1] * 4))
    assert found["fraction_solved_90"]["mean"] == 0.5 and found["fraction_solved"]["mean"] == 0.75
    assert 0 <= found["fraction_solved_90"]["low"] < 0.5 < found["fraction_solved_90"]["high"] <= 1


def test_success_after_the_first_success_by_hand() -> None:
    """2 of 4 and 0 of 1 episodes; a stream without a success and one whose first comes last have none."""
    streams = [[0, 1, 1, 0, 1, 0], [0, 0, 0, 0, 1, 0], [0] * 6, [0, 0, 0, 0, 0, 1]]
    played = paying([[row] for row in streams])
    references = exact([0] * 4, [1] * 4)
    assert final(played, references=references)["success_after_first"]["mean"] == 2 / 5
    both = final(played, paying(np.ones((4, 1, 6))), references=references)["success_after_first"]
    assert both["mean"] == (2 + 20) / (5 + 20) and 0 <= both["low"] < both["mean"] < both["high"] == 1
    assert "success_after_first" not in final(paying(np.zeros((4, 1, 6))), references=references)


@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 3), st.integers(1, 6))
@settings(deadline=None)
def test_success_after_the_first_success_by_loops(seed: int, num_tasks: int, num_streams: int, num: int) -> None:
    success = np.random.default_rng(seed).random((1, num_tasks, num_streams, num)) < 0.4
    above, below = after_first(success.astype(float))
    for task in range(num_tasks):
        for stream in range(num_streams):
            row = success[0, task, stream].tolist()
            rest = row[row.index(True) + 1 :] if True in row else []
            assert (above[0, task, stream], below[0, task, stream]) == (sum(rest), len(rest))


def test_shares_stay_between_0_and_1() -> None:
    """Of two runs that differ much: where a plain t interval would leave the scale."""
    runs = [paying(np.ones((2, 3, 8))), paying(np.zeros((2, 3, 8)))]
    found = report(*runs)
    for number in (found["final"]["held_out"]["success"], found["final"]["held_out"]["fraction_solved"]):
        assert (number["mean"], number["low"], number["high"]) == (0.5, 0, 1)
    assert found["curves"]["model, held-out tasks"]["success"]["high"] == [1] * 8
    assert found["final"]["held_out"]["returns"]["high"] > 1.5


def test_coverage_of_several_runs() -> None:
    one = {"plan": np.full((1, 4, 2), 0.5), "model": np.array([[[0.1, 0.2]] * 2 + [[0.3, 0.4]] * 2])}
    two = {"plan": np.full((1, 4, 2), 0.5), "model": np.full((1, 4, 2), 0.9)}
    assert coverage_numbers([one, {}], OPTIONS, 0) == coverage_numbers([{}], OPTIONS, 0) == {}
    alone = coverage_numbers([one], OPTIONS, 0)["coverage"]
    assert alone["model"]["mean"] == pytest.approx([0.2, 0.3])
    assert 0.1 <= alone["model"]["low"][0] < 0.2 < alone["model"]["high"][0] <= 0.3
    both = coverage_numbers([one, two], OPTIONS, 0)["coverage"]
    assert both["model"]["mean"] == pytest.approx([0.55, 0.6])
    assert (both["model"]["low"], both["model"]["high"]) == ([0, 0], [1, 1])  # 12.7 standard errors
    assert both["plan"]["low"] == both["plan"]["high"] == [0.5, 0.5]


def test_what_is_measured_is_averaged_over_runs() -> None:
    one, two = adaptation(), Adaptation(*(3 * values for values in adaptation()))
    found = report(one, two)
    assert found["protocol"]["seeds"] == [0, 1]
    assert found["final"]["held_out"]["returns"]["mean"] == 5
    assert found["final"]["held_out"]["returns_per_task"] == [10, 0]
    assert found["curves"]["model, held-out tasks"]["steps_to_goal"]["mean"][:4] == [40, 40, 40, 24]


def test_each_number_has_the_interval_it_would_have_by_itself() -> None:
    """Resamples are shared between measures, also where some leave out tasks."""
    rng = np.random.default_rng(0)
    runs = [paying(rng.random((4, 3, 8)) * 2) for _ in range(2)]
    optimum = np.array([2.0, 0.0, 4.0, 3.0])
    found = report(*runs, references=exact([0.5, 0.0, 0.5, 1.0], optimum.tolist()))
    returns = np.stack([run.returns for run in runs])
    kept = optimum > 0
    for number, values in (
        (found["curves"]["model, held-out tasks"]["returns"], returns),
        (found["final"]["held_out"]["returns"], returns[..., -2:].mean(-1)),
        (
            found["curves"]["model, held-out tasks"]["fraction_of_optimum"],
            returns[:, kept] / optimum[kept, None, None],
        ),
    ):
        low, high = percentile_interval(bootstrap_means(values, 200, 0), OPTIONS.confidence)
        np.testing.assert_allclose(number["low"], low)
        np.testing.assert_allclose(number["high"], high)
        np.testing.assert_allclose(number["interquartile_mean"], interquartile_mean(values))


def test_tasks_that_pay_nothing_have_no_fraction() -> None:
    found = final(paying([[[1, 1]], [[1, 1]], [[1, 1]]]), references=exact([-2, 0, 1], [0, 2, 1]))
    assert found["fraction_of_optimum"]["mean"] == pytest.approx((1 / 2 + 1) / 2)
    assert found["area"]["mean"] == pytest.approx((3 / 2 + 1 / 2) / 2)  # the last optimum is what chance comes to
    nothing = final(paying([[[0, 0]]]), references=exact([0], [0]))
    assert not {"fraction_of_optimum", "area", "episodes_to_90"} & set(nothing)


@given(st.integers(0, 10**6), st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.integers(2, 9))
@settings(deadline=None)
def test_area_and_episodes_to_90_by_loops(seed: int, num_runs: int, num_tasks: int, num_streams: int, num: int) -> None:
    rng = np.random.default_rng(seed)
    random, optimum = rng.random(num_tasks), 1 + rng.random(num_tasks)
    runs = [rng.random((num_tasks, num_streams, num)) * 2 for _ in range(num_runs)]
    found = final(*map(paying, runs), references=exact(random.tolist(), optimum.tolist()))
    area, curve = 0.0, [0.0] * num
    for run in runs:
        for task in range(num_tasks):
            for stream in range(num_streams):
                for episode in range(num):
                    value, chance, best = float(run[task, stream, episode]), random[task], optimum[task]
                    area += (value - chance) / (best - chance) / num
                    curve[episode] += value / (num_runs * num_tasks * num_streams)
    assert found["area"]["mean"] == pytest.approx(area / (num_runs * num_tasks * num_streams))
    near = None
    for episode in range(num - min(3, num), -1, -1):
        window = curve[episode : episode + 3]
        if sum(window) / len(window) >= 0.9 * optimum.mean():
            near = episode + 1
    assert found["episodes_to_90"]["episode"] == near
    if found["episodes_to_90"]["share_reached"]:
        assert 1 <= found["episodes_to_90"]["low"] <= found["episodes_to_90"]["high"] <= max(num - 2, 1)


def test_how_many_resamples_reach_the_optimum() -> None:
    """A task that does from its third episode on, and one that never does: only resamples of the first alone get
    there, a quarter of them."""
    one, never = [[0, 0, 2, 2, 2, 2]] * 2, [[0, 0, 0, 0, 0, 0]] * 2
    near = final(paying([one, never]), references=exact([0, 0], [2, 2]))["episodes_to_90"]
    assert near["episode"] is None and near["low"] == near["high"] == 3
    assert 0.15 < near["share_reached"] < 0.35
    always = final(paying([one, one]), references=exact([0, 0], [2, 2]))["episodes_to_90"]
    assert always == {"episode": 3, "low": 3, "high": 3, "share_reached": 1}
    lost = final(paying([never]), references=exact([0], [2]))["episodes_to_90"]
    assert lost == {"episode": None, "low": None, "high": None, "share_reached": 0}
    blip = final(paying([[[0, 2, 0, 0, 0, 0]]]), references=exact([0], [2]))["episodes_to_90"]
    assert blip["episode"] is None  # one episode is no more than luck


def test_regret_is_what_was_missed_so_far() -> None:
    """The first task misses 6 in each of three episodes and 1 in each of five, the second 1 in each of eight."""
    found = report(adaptation(), regrets=True)
    assert found["curves"]["model, held-out tasks"]["regret"]["mean"] == [
        (a + b) / 2 for a, b in zip([6, 12, 18, 19, 20, 21, 22, 23], range(1, 9), strict=True)
    ]
    assert found["final"]["held_out"]["regret"]["mean"] == (23 + 8) / 2
    assert found["final"]["held_out"]["regret_per_task"] == [23, 8]
    assert "regret" not in final(adaptation()) and "regret" not in report(adaptation())["curves"]["random"]


def test_what_searcher_and_covering_plan_have_more() -> None:
    """On each task what its streams return on average; it may be that it has fewer or more streams than the model."""
    searcher = paying([[[1, 4], [3, 4]], [[1, 0], [1, 0]]])
    ours = paying([[[1, 2]] * 3, [[0, 1]] * 3])
    found = report(ours, others={"searcher": searcher, "train": ours, "temperature 0": ours})
    assert found["final"]["held_out"]["regret_to_searcher"]["mean"] == ((1 + 2) + (1 - 1)) / 2
    assert found["decodings"]["0"]["final"]["regret_to_searcher"]["mean"] == 1.5
    assert "regret_to_searcher" not in found["final"]["train"]  # other tasks
    assert "regret_to_searcher" not in final(ours)
    found = report(ours, others={"covering plan": searcher})
    assert found["final"]["held_out"]["regret_to_covering_plan"]["mean"] == 1.5
    assert "regret_to_searcher" not in found["final"]["held_out"]


def test_exact_references_are_the_same_in_each_episode() -> None:
    expectations = {
        "random": Expectation(torch.tensor([1.0, 0.5]), torch.tensor([0.2, 0.4]), torch.tensor([18.0, 16.0])),
        "optimum": Expectation(torch.tensor([6.0, 1.0]), torch.ones(2), torch.tensor([2.0, 4.0])),
    }
    written = exact_numbers(expectations)
    assert written["random"] == {
        "returns": [1.0, 0.5],
        "success": [pytest.approx(0.2), pytest.approx(0.4)],
        "steps_to_goal": [18.0, 16.0],
    }
    curves = report(adaptation(), references=written, regrets=True)["curves"]
    for curve in (*curves["random"].values(), *curves["optimum"].values()):
        assert curve["low"] == curve["mean"] == curve["high"]
    assert curves["random"]["success"]["mean"] == pytest.approx([0.3] * 8)
    assert curves["random"]["steps_to_goal"]["mean"] == [17] * 8
    assert curves["random"]["fraction_of_optimum"]["mean"] == pytest.approx([(1 / 6 + 1 / 2) / 2] * 8)
    assert curves["random"]["regret"]["mean"] == [2.75 * number for number in range(1, 9)]
    assert curves["optimum"]["regret"]["mean"] == [0] * 8


def test_without_a_planner_there_is_no_optimum() -> None:
    found = report(adaptation(), references={}, others={"random": adaptation()})
    assert set(found["curves"]) == {"model, held-out tasks", "random"}
    assert not {"fraction_of_optimum", "area", "episodes_to_90"} & set(found["final"]["held_out"])
    assert found["final"]["held_out"]["success"]["mean"] == 0.5


def test_who_is_reported_where() -> None:
    other = paying(np.ones((2, 1, 8)))
    names = ("train", "A2C, training tasks, start of life", "UCB1", "temperature 0", "temperature 0.5", "blank")
    found = report(adaptation(), others=dict.fromkeys((*names, "shuffled", "other_task"), other))
    assert list(found["curves"]) == [
        *("model, held-out tasks", "model, training tasks", "A2C, training tasks, start of life", "UCB1"),
        *("random", "optimum"),
    ]
    assert list(found["final"]) == ["held_out", "train"]
    assert list(found["decodings"]) == ["1", "0", "0.5"]
    assert found["decodings"]["1"]["final"] == found["final"]["held_out"]
    assert [probe["label"] for probe in found["decodings"].values()] == [
        *("model, held-out tasks", "model, greedy", "model, temperature 0.5")
    ]
    assert {name: probe["label"] for name, probe in found["ablations"].items()} == {
        name: label_of(name) for name in ("blank", "shuffled", "other_task")
    }
    assert found["ablations"]["blank"]["curves"]["success"]["mean"] == [1] * 8
    assert found["protocol"]["num_streams"]["held_out"] == 3 and found["protocol"]["num_streams"]["blank"] == 1
    assert found["protocol"]["num_tasks"]["train"] == 2 and found["protocol"]["num_episodes"] == 8


def test_the_training_tasks_have_references_of_their_own() -> None:
    setting = Setting({"held_out": exact([0, 0], [1, 1]), "train": exact([0], [4])}, "1", False)
    played = {"held_out": paying(np.ones((2, 1, 4))), "train": paying(np.ones((1, 1, 4)))}
    life = {"A2C, training tasks, end of life": played["train"]}
    found = numbers_of({0: played | life}, setting, OPTIONS, 0)
    assert found["final"]["train"]["fraction_of_optimum"]["mean"] == 0.25
    assert found["curves"]["A2C, training tasks, end of life"]["fraction_of_optimum"]["mean"] == [0.25] * 4
    assert found["final"]["held_out"]["area"]["mean"] == 1


def test_every_number_is_explained() -> None:
    found = report(adaptation(), regrets=True, others={"searcher": adaptation(), "blank": adaptation()})
    text = json.dumps(found, allow_nan=False)
    assert json.loads(text) == found
    explained = {name for names in found["protocol"]["definitions"] for name in names.split(", ")}
    probe = found["ablations"]["blank"]
    for names in (probe["final"], probe["curves"], probe["curves"]["success"], found["ablations"]):
        assert {name.removesuffix("_per_task") for name in names} <= explained
    assert set(found) - {"protocol"} <= set(DEFINITIONS)


@pytest.mark.parametrize(
    ("temperature", "epsilon", "name"),
    [(1.0, 1.0, "1"), (0.5, 1.0, "0.5"), (0.7, 0.0, "0"), (1.5, 0.25, "1.5, with probability 0.25")],
)
def test_decodings_are_called_by_their_temperature(temperature: float, epsilon: float, name: str) -> None:
    assert decoding_name(temperature, epsilon) == name


# ---- several runs


OWNER = Identity("evaluate", "f00d")


def written(folder: Path, seed: int, found: Mapping[str, Adaptation], **changes: Any) -> Path:
    """An evaluation on disk, as stage three leaves it; `changes` to what its results say."""
    setting = Setting(dict.fromkeys(found, EXACT), "1", regrets=True)
    results = {
        "config": {"env": {"size": 3}, "seed": seed},
        "held_out_tasks": [[7], [4]],
        "train_tasks": [[1], [2]],
        "references": setting.references,
        **numbers_of({seed: found}, setting, OPTIONS, seed),
        **coverage_numbers([covered(seed)], OPTIONS, seed),
    }
    results |= {"checkpoint": "abc", "episodes": save_episodes(folder, found, OWNER, covered(seed))}
    write_owned(folder / "results.json", OWNER, 6, results | changes)
    return folder


def life(seed: int, num_streams: int = 3) -> dict[str, Adaptation]:
    rng = np.random.default_rng(seed)
    return {name: paying(rng.integers(3, size=(2, num_streams, 8))) for name in ("held_out", "train", "searcher")}


def covered(seed: int) -> dict[str, Any]:
    shares = np.random.default_rng(seed).random((1, 5, 3)).cumsum(axis=2) / 3
    return {"model, context kept": shares, "random": shares / 2}


def test_runs_are_put_together(tmp_path: Path) -> None:
    folders = [written(tmp_path / str(seed), seed, life(seed)) for seed in (4, 2)]
    found = combined(folders, OPTIONS, 5)
    assert found.pop("coverage") == coverage_numbers([covered(4), covered(2)], OPTIONS, 5)["coverage"]
    setting = Setting({"held_out": EXACT, "train": EXACT}, "1", regrets=True)
    assert found == {
        **numbers_of({4: life(4), 2: life(2)}, setting, OPTIONS, 5),
        "held_out_tasks": [[7], [4]],
        "train_tasks": [[1], [2]],
        "references": dict.fromkeys(("held_out", "train", "searcher"), EXACT),
    }
    assert found["protocol"]["seeds"] == [4, 2] and "regret" in found["final"]["held_out"]
    both = np.stack([life(seed)["held_out"].returns for seed in (4, 2)])
    assert found["curves"]["model, held-out tasks"]["returns"]["mean"] == pytest.approx(both.mean((0, 1, 2)).tolist())
    alone = combined(folders[:1], OPTIONS, 4)
    results, _ = read_results(folders[0])
    assert results | alone == results and results.keys() - alone.keys() == {"config", "checkpoint", "episodes"}


@pytest.mark.parametrize(
    ("seed", "num_streams", "changes", "words"),
    [
        (1, 3, {"held_out_tasks": [[7], [5]]}, "held-out tasks"),
        (1, 3, {"train_tasks": [[1], [3]]}, "training tasks"),
        (1, 3, {"config": {"env": {"size": 4}, "seed": 1}}, "worlds"),
        (1, 2, {}, "policies, streams or episodes"),
        (0, 3, {}, "same seed"),
    ],
)
def test_unlike_runs_are_refused(
    tmp_path: Path, seed: int, num_streams: int, changes: dict[str, Any], words: str
) -> None:
    first = written(tmp_path / "first", 0, life(0))
    second = written(tmp_path / "second", seed, life(seed, num_streams), **changes)
    with pytest.raises(PipelineError, match=words) as error:
        combined([first, second], OPTIONS, 0)
    assert str(first) in str(error.value) and str(second) in str(error.value)


def test_other_decodings_are_refused(tmp_path: Path) -> None:
    first, second = (written(tmp_path / str(seed), seed, life(seed)) for seed in (0, 1))
    results, _ = read_results(second)
    results["protocol"]["decoding"] = "0"
    write_owned(second / "results.json", OWNER, 6, results)
    with pytest.raises(PipelineError, match="decodings differ"):
        combined([first, second], OPTIONS, 0)


def test_folders_that_are_not_whole_are_refused(tmp_path: Path) -> None:
    folder = written(tmp_path, 0, life(0))
    fewer = {name: Adaptation(*(values[..., 1:] for values in found)) for name, found in life(0).items()}
    for others in (life(0, num_streams=2), fewer, {"held_out": life(0)["held_out"]}):
        save_episodes(folder, others, OWNER)
        with pytest.raises(PipelineError, match="episodes.npz does not hold"):
            combined([folder], OPTIONS, 0)
    (folder / "episodes.npz").unlink()
    with pytest.raises(PipelineError, match="episodes.npz"):
        combined([folder], OPTIONS, 0)
    save_episodes(folder, life(0), Identity("evaluate", "beef"))
    with pytest.raises(PipelineError, match=r"episodes\.npz is of evaluate \(run beef\), .* of evaluate \(run f00d\)"):
        combined([folder], OPTIONS, 0)
    save_episodes(folder, life(0), OWNER, covered(0))
    combined([folder], OPTIONS, 0)
    write_json(folder / "results.json", {"config": dataclasses.asdict(OPTIONS)})
    with pytest.raises(PipelineError, match=r"results\.json does not hold what belongs there"):
        combined([folder], OPTIONS, 0)
    (folder / "results.json").unlink()
    with pytest.raises(PipelineError, match="results.json"):
        combined([folder], OPTIONS, 0)
