"""Table, picture and files of a study, from numbers that are written down here."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import small_models
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image
from results import write_results

from icrl.app.compose import compose_config
from icrl.config.options import replace
from icrl.contracts import PipelineError
from icrl.extensions.curves.adaptation_curves import shared_references
from icrl.extensions.studies import report as study_report
from icrl.extensions.studies.options import StudiedConfig
from icrl.extensions.studies.pictures import study_figure
from icrl.extensions.studies.plan import Row
from icrl.extensions.studies.report import answer, published_cells, result_of, study_cells, study_table, write_report
from icrl.plots.style import save_figure
from icrl.runs.files import Identity, read_json, write_json, write_owned

NUM_EPISODES = 12
STUDY = compose_config(StudiedConfig, ["study.question=works", "study.xlabel=tasks"]).study


def interval(mean: float) -> dict[str, float]:
    return {"mean": mean, "low": mean - 0.1, "high": mean + 0.05}


def curve(end: float) -> dict[str, list[float]]:
    mean = [end * episode / NUM_EPISODES for episode in range(1, NUM_EPISODES + 1)]
    return {"mean": mean, "low": [value - 0.1 for value in mean], "high": [value + 0.05 for value in mean]}


def found(end: float, searcher: float = 1.0) -> dict[str, Any]:
    """Results of runs that reach `end`, in a world where the searcher reaches `searcher`."""
    final = {"success": interval(end), "returns": interval(2 * end), "steps_to_goal": interval(7.126)}
    final |= {"fraction_of_optimum": interval(end), "area": interval(0.25), "fraction_solved": interval(0.75)}
    curves: dict[str, Any] = {"model, held-out tasks": {"success": curve(end), "returns": curve(2 * end)}}
    for name, level in (("model, training tasks", 0.9), ("random", 0.1), ("searcher", searcher), ("optimum", 1.0)):
        curves[name] = {measure: {"mean": [level] * NUM_EPISODES} for measure in ("success", "returns")}
    near = {"episode": 7, "low": 5.0, "high": 9.0, "share_reached": 1.0}
    training = {"success": interval(0.8), "returns": interval(1.6)}
    return {"curves": curves, "final": {"held_out": final | {"episodes_to_90": near}, "train": training}}


def result(variant: str, end: float, **more: Any) -> dict[str, Any]:
    blank = {"test": "", "x": None, "line": "", "updates": 300, "training_seconds": 61.4, "found": found(end)}
    return {"variant": variant} | blank | more


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()]


def table_of(results: list[dict[str, Any]], measure: str) -> str:
    return study_table(study_cells(results, measure))


@pytest.mark.parametrize(
    ("ends", "runs", "told"),
    [
        ((0.5, 0.75), 3, "b 0.750 [0.650, 0.800], a 0.500 [0.400, 0.550]; b is best with 3 seeds."),
        ((0.75, 0.7), 3, "a 0.750 [0.650, 0.800], b 0.700 [0.600, 0.750]; undecided with 3 seeds, because"),
        ((0.5, 0.75), 2, "; undecided with 2 seeds; 2 seeds are too few: give 3 or more."),
        ((0.5,), 1, "a 0.500 [0.400, 0.550]; 1 seed is too few: give 3 or more."),
    ],
)
def test_the_question_is_answered_with_intervals(ends: tuple[float, ...], runs: int, told: str) -> None:
    results = [result(name, end, runs=["run"] * runs) for name, end in zip("ab", ends, strict=False)]
    question, line = answer(results, STUDY).splitlines()
    assert question == "works" and line.startswith("Success over the last quarter of the episodes: ") and told in line
    _, *lines = answer([one | {"test": world} for one in results for world in ("9", "11")], STUDY).splitlines()
    assert [one.partition(": ")[0] for one in lines] == ["9", "11"] and all(told in one for one in lines)


def test_the_answer_counts_the_runs_of_the_variant_that_has_fewest() -> None:
    """One of three is told beside the best: the nearest whose interval overlaps, or else the next one."""
    several = STUDY.model_copy(update={"splits": [1, 2]})
    reached = (("a", 0.2, 4), ("b", 0.9, 4), ("c", 0.6, 3))
    results = [result(name, end, runs=["run"] * runs) for name, end, runs in reached]
    told = "b 0.900 [0.800, 0.950], c 0.600 [0.500, 0.650]; b is best with 3 runs."
    assert answer(results, several).endswith(told)
    results[0]["found"]["final"]["held_out"]["success"]["high"] = 0.8
    told = "b 0.900 [0.800, 0.950], a 0.200 [0.100, 0.800]; undecided with 3 runs, because these intervals overlap."
    assert answer(results, several).endswith(told)


def test_a_study_without_a_success_has_no_columns_of_it() -> None:
    one = result("a", 0.0)
    one["found"]["final"]["held_out"]["scaled_return"] = interval(0.5)
    for curves in one["found"]["curves"].values():
        curves["success"]["mean"] = [0.0] * NUM_EPISODES
    header, _, row = cells(table_of([one], "returns"))
    assert header[:4] == ["variant", "return, last quarter", "episode 10", "scaled return"]
    assert row[3] == "0.500 [0.400, 0.550]" and not {"steps to goal", "goals solved"} & {*header}


def test_the_table_has_every_number() -> None:
    header, rule, first, second = cells(table_of([result("a|b", 0.5), result("c", 0.25)], "success"))
    assert len(header) == len(rule) == len(first) == len(second) and set(rule) == {"---"}
    assert dict(zip(header, first, strict=True)) == {
        "variant": "a\\|b",
        "success, last quarter": "0.500 [0.400, 0.550]",
        "episode 10": "0.417",  # 0.5 * 10 / 12
        "steps to goal": "7.13",
        "tasks": "held-out",
        "training tasks": "0.800",
        "fraction of optimum": "0.500 [0.400, 0.550]",
        "normalised area": "0.250 [0.150, 0.300]",
        "episodes to 90 %": "7",
        "goals solved": "0.75 [0.65, 0.80]",
        "updates": "300",
        "training": "61 s",
    }
    assert second[0] == "c" and second[1].startswith("0.250") and header[3] == "steps to goal"


def test_a_column_is_there_if_one_row_has_it() -> None:
    """Results of older versions have fewer measures."""
    unknown, other = result("a", 0.5, training_seconds=None), result("b", 0.5, test="13")
    final = unknown["found"]["final"]
    del final["train"], final["held_out"]["area"], final["held_out"]["fraction_of_optimum"]
    final["held_out"]["episodes_to_90"]["episode"] = None
    header, _, row = cells(table_of([unknown], "success"))
    assert not {"training tasks", "normalised area", "fraction of optimum", "training", "world"} & set(header)
    assert dict(zip(header, row, strict=True))["episodes to 90 %"] == "never"
    shares = {"model, context kept": {key: [0.1, 0.2, 0.3, value] for key, value in interval(0.5).items()}}
    other["found"] |= dict.fromkeys(("coverage", "coverage_gain", "off_plan_gain"), shares)
    other["found"]["moved_goal"] = {"model": {"final": {"success_10_after_move": interval(0.25)}}}
    header, _, first, second = cells(table_of([unknown, other], "success"))
    for column, value in (
        *(("cells visited by episode 4", "0.500 [0.400, 0.550]"), ("of these by memory", "0.500 [0.400, 0.550]")),
        ("new cells above a blind replay", "0.500 [0.400, 0.550]"),
        *(("moved goal, episode 10", "0.250 [0.150, 0.300]"), ("world", "13"), ("training", "61 s")),
    ):
        assert (first[header.index(column)], second[header.index(column)]) == ("-", value)


def test_published_results_stand_beside_ours() -> None:
    """Policies of a row with published ones: the model, ours, and those that are published alone; total rewards of a
    life, or returns of the last episode or of one by its number."""
    published = [{"label": name, "value": value, "source": "a paper"} for name, value in (("random", 1.0), ("RL^2", 7))]
    one, other, early = (
        result(name, 0.5, published=[cited | {"measure": measure} for cited in published])
        for name, measure in (("a", "total"), ("b", "last"), ("d", 2))
    )
    early["found"]["curves"]["random"]["returns"] = {"mean": [0.1, 0.2, 0.3]}
    one["found"]["final"]["held_out"]["total"] = interval(6.5)
    assert published_cells([result("c", 0.5, published=[])]) == []
    assert published_cells([result("c", 0.5, published=[]), one, other]) == [
        ["variant", "policy", "measure", "ours", "published", "source"],
        ["a", "model", "total reward of a life", "6.5 [6.4, 6.5]", "-", "-"],
        ["a", "random", "total reward of a life", "1.2", "1", "a paper"],  # 0.1 in each of 12 episodes
        ["a", "searcher", "total reward of a life", "12.0", "-", "-"],
        ["a", "optimum", "total reward of a life", "12.0", "-", "-"],
        ["a", "RL^2", "total reward of a life", "-", "7", "a paper"],
        ["b", "model", "return, last episode", "1.00 [0.90, 1.05]", "-", "-"],
        ["b", "random", "return, last episode", "0.10", "1", "a paper"],
        ["b", "searcher", "return, last episode", "1.00", "-", "-"],
        ["b", "optimum", "return, last episode", "1.00", "-", "-"],
        ["b", "RL^2", "return, last episode", "-", "7", "a paper"],
    ]
    rows = published_cells([early])
    assert ["d", "random", "return, episode 2", "0.20", "1", "a paper"] in rows


def test_published_results_of_one_policy_may_have_several_sources_and_measures() -> None:
    cited = [("total", 74.7, "A"), ("total", 75.1, "B"), ("last", 0.9, "A")]
    published = [{"label": "random", "value": value, "source": of, "measure": name} for name, value, of in cited]
    several = result("a", 0.5, published=published)
    several["found"]["final"]["held_out"]["total"] = interval(6.5)
    assert [row[2:] for row in published_cells([several]) if row[1] == "random"] == [
        ["total reward of a life", "1.2", "74.7", "A"],
        ["total reward of a life", "1.2", "75.1", "B"],
        ["return, last episode", "0.10", "0.9", "A"],
    ]


def axes_of(results: list[dict[str, Any]], measure: str = "success") -> tuple[Axes, Axes, list[str]]:
    figure = study_figure(results, replace(STUDY, measure=measure))
    left, right = figure.axes
    return left, right, legend(figure)


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def marked(axes: Axes) -> list[tuple[list[float], list[float]]]:
    """Places and heights of each line of marks."""
    return [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines if line.get_marker() == "o"]


def test_the_picture_of_variants_without_places() -> None:
    results = [result("a", 0.5), result("b", 0.75)]
    left, right, names = axes_of(results)
    assert names == ["a", "b", "random", "searcher", "optimum"] and len(left.collections) == 2, "intervals"
    for line, end in zip(left.lines, (0.5, 0.75), strict=False):
        assert list(line.get_ydata()) == curve(end)["mean"]
    assert [text.get_text() for text in right.get_xticklabels()] == ["a", "b"]
    assert [line.get_ydata()[0] for line in right.lines if line.get_marker() == "o"] == [0.5, 0.75]
    spans = [segment[:, 1].tolist() for bars in right.collections for segment in bars.get_segments()]
    assert spans == [pytest.approx([0.4, 0.55]), pytest.approx([0.65, 0.8])]


def test_the_picture_of_variants_on_an_axis() -> None:
    """Sorted along their line, whose curves get darker."""
    ends = [("c", 0.75, 20, "far"), ("a", 0.5, 5, "near"), ("b", 0.25, 1, "far")]
    left, right, names = axes_of([result(name, end, x=x, line=line) for name, end, x, line in ends], "returns")
    assert names == ["random", "searcher", "optimum", "far", "near"]
    assert marked(right) == [([1, 20], [0.5, 1.5]), ([5], [1.0])]
    assert right.get_xscale() == "log" and list(right.get_xticks()) == [1, 5, 20]
    last, _, first = (to_rgb(line.get_color()) for line in left.lines[:3])
    assert sum(first) > sum(last)


def test_places_with_names_have_panels_of_their_own() -> None:
    ends = {("good", "ad"): 0.75, ("good", "awr"): 0.5, ("bad", "ad"): 0.25}
    figure = study_figure([result(f"{line}, {x}", end, x=x, line=line) for (x, line), end in ends.items()], STUDY)
    good, bad, right = figure.axes
    assert [axes.get_title() for axes in (good, bad)] == ["good", "bad"] and good.get_ylim() == bad.get_ylim()
    assert legend(figure) == ["random", "searcher", "optimum", "ad", "awr"]
    for axes, shown in ((good, [0.75, 0.5]), (bad, [0.25])):
        assert [line.get_ydata()[-1] for line in axes.lines[: len(shown)]] == shown
    assert marked(right) == [([0, 1], [0.75, 0.25]), ([0], [0.5])]


def test_scales_and_intervals() -> None:
    left, right, _ = axes_of([result("a", 0.5, x=0), result("b", 0.25, x=100)])
    assert right.get_xscale() == "linear" and left.collections, "an axis from zero"
    assert not axes_of([result(f"v{i}", 0.5, x=i + 1) for i in range(7)])[0].collections


def test_references_are_shown_if_all_share_a_world() -> None:
    results = [result("a", 0.5), result("b", 0.6), result("c", 0.5, found=found(0.5, searcher=0.75))]
    assert list(shared_references(results[:2], "success")) == ["random", "searcher", "optimum"]
    del results[2]["found"]["curves"]["random"]
    assert list(shared_references(results, "success")) == ["optimum"]


def model_folder(folder: Path, *started: float) -> Path:
    """A model whose training started at these times, in seconds before its end."""
    folder.mkdir(parents=True)
    small_models.finish(folder, 100)
    write_json(folder / "last-000000100.json", {"state_sha256": f"{folder.parent.name} {folder.name}"})
    times = [datetime.fromtimestamp(1e9 - seconds, UTC).isoformat() for seconds in (*started, 0)]
    git = {"revision": f"{len(started)}ab", "dirty": len(started) > 1}
    sessions = [{"started": time, "git": git} for time in times[:-1]]
    sessions[-1]["ended"] = times[-1]  # whenever these files were written or copied
    write_owned(folder / "run.json", Identity("train_gpt", small_models.RUN), 0, {"sessions": sessions})
    return folder


def rows_in(root: Path, config: StudiedConfig) -> list[Row]:
    """A row of models, and one of the same models guided by critics."""
    models = [model_folder(root / "whole" / "gpt", 20), model_folder(root / "other" / "gpt", 40)]
    models.append(model_folder(root / "continued" / "gpt", 500, 10))
    critics = [model_folder(model.parent / "ilql", 5) for model in models]
    folders = [model.parent / "evaluation" for model in models]
    for folder in folders:
        write_results(folder, checkpoint=f"{folder.parent.name} gpt")
    guided = [[model, critic] for model, critic in zip(models, critics, strict=True)]
    alone = [[model] for model in models]
    return [Row(name, "", None, "", config, folders, parts) for name, parts in (("a", alone), ("b", guided))]


def test_a_report_is_of_the_models_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_report, "combined", lambda *_: found(0.5))
    plain, guided = rows_in(tmp_path, compose_config(StudiedConfig, [f"root={tmp_path}"]))
    folder, (model, critic) = guided.folders[0], guided.models[0]
    for row, played in ((plain, "whole gpt"), (guided, "whole gpt+whole ilql")):
        write_results(folder, checkpoint=played)
        assert result_of(row)["updates"]
        write_results(folder, checkpoint="trained before")
        with pytest.raises(PipelineError, match=rf"{folder}/results\.json is of another model than those in {model}"):
            result_of(row)
    write_results(folder, checkpoint="whole gpt")
    write_owned(critic / "run.json", Identity("train_gpt", "beef"), 0, read_json(critic / "run.json"))
    with pytest.raises(PipelineError, match=r"run\.json is from train_gpt \(run beef\), but "):
        result_of(guided)


def test_a_report_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = compose_config(StudiedConfig, [f"root={tmp_path}", "study.seeds=[4]", "seed=4"])
    asked: list[Any] = []
    monkeypatch.setattr(study_report, "combined", lambda *arguments: asked.append(arguments) or found(0.5))
    rows = rows_in(tmp_path, config)
    rows[1] = rows[1]._replace(variant="study")  # as the report is called
    save_figure(rows[0].folders[0] / "adaptation.png", study_figure([result("a", 0.5)], STUDY))
    told = write_report(tmp_path / "study", config, rows)
    assert asked == [(row.folders, config.evaluation, 4) for row in rows]
    results = read_json(tmp_path / "study" / "results.json")
    assert (tmp_path / "study" / "table.md").read_text() == table_of(results["rows"], "success") + "\n"
    assert told.startswith("Which variant is best?\nSuccess over the last quarter")
    assert "steps to goal" in told and "updates" not in told
    page = (tmp_path / "study" / "study.html").read_text()
    assert "data:image/png;base64," in page and not re.search(r'(src|href)="(?!data:)', page)
    assert "<td>7.13</td>" in page
    assert results["rows"] == json.loads(json.dumps([result_of(row) for row in rows]))
    assert page.count("<img") == 3
    assert results["rows"][1]["variant"] == "study" and results["rows"][1]["runs"] == ["whole", "other", "continued"]
    assert [row["training_seconds"] for row in results["rows"]] == pytest.approx([30, 35], abs=0.1)
    assert [row["updates"] for row in results["rows"]] == [100, 200]
    assert results["machine"]["cpu"] and results["machine"]["cores"] >= 1
    assert results["config"]["study"]["seeds"] == [4] and set(results["versions"]) == {"python", "torch", "numpy"}
    assert results["rows"][0]["trained_at"] == ["1ab", "2ab+"]
    with Image.open(tmp_path / "study" / "study.png") as picture:
        assert picture.size == (350, 187)  # a quarter, see `blank`
