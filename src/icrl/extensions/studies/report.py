"""Report of a study: its answer in a sentence, and the numbers of every row (`plan.Row`) over its seeds, as a Markdown
table and on a page with pictures."""

import html
import os
import platform
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import torch

from icrl.config.options import replace
from icrl.contracts import Json, PipelineError
from icrl.evaluation.measures import SCALED, measure_of
from icrl.evaluation.protocol import PARTS, shown_part
from icrl.evaluation.report import read_results
from icrl.evaluation.tables import LABELS, aligned, interval_text
from icrl.extensions.curves.adaptation_curves import Result, shown_curve
from icrl.extensions.studies.combined import combined
from icrl.extensions.studies.options import StudiedConfig, StudyConfig
from icrl.extensions.studies.pictures import row_name, study_figure
from icrl.extensions.studies.plan import Row
from icrl.plots.style import save_figure
from icrl.runs.files import PROJECT, identity_of, read_json, read_owned, write_atomically, write_owned
from icrl.runs.record import git_state, read_sessions

Cells = list[list[str]]

EARLY = 10  # the episode that shows how quick adaptation is
LATER = 10  # episodes after the goal moved
COVERAGE_KEPT = "model, context kept"  # the model, in the section `coverage`
MOVED = ("moved_goal", "model", "final", f"success_{LATER}_after_move")
COVERED = 4  # the episode by the end of which a covering plan has seen the default room
NOTHING = "-"
_PUBLISHED = {"total": "total reward of a life", "last": "return, last episode"}  # names of the measures
ENOUGH = 3  # runs of a variant: the interval of fewer says little of others
_STYLE = """body { font: 16px/1.5 system-ui, sans-serif; max-width: 1200px; margin: 24px auto; padding: 0 16px }
h1 { font-size: 24px; margin: 0 } img { max-width: 100%; display: block } div { overflow-x: auto }
table { border-collapse: collapse; margin: 16px 0; font-size: 14px } th, td { padding: 4px 12px; text-align: right }
td { white-space: nowrap } th { border-bottom: 2px solid } tr + tr { border-top: 1px solid #ddd }
:is(th, td):first-child { text-align: left }"""


def write_report(folder: Path, config: StudiedConfig, rows: Sequence[Row]) -> str:
    """Write `results.json`, `table.md`, `study.png` and `study.html` of a finished study into `folder`; returns its
    answer with the first columns of the table."""
    results = [result_of(row) for row in rows]
    evaluations = [read_results(part)[1].run for row in rows for part in row.folders]
    owner = identity_of("study", config, config.model_dump().keys() - {"name", "root"}, {"evaluations": evaluations})
    asked = config.study.question
    study = replace(config.study, question="Which variant is best?" if asked == "none" else asked)
    about = {
        "config": config.model_dump(),
        "reported_at": {key: value for key, value in git_state(PROJECT).items() if key in ("revision", "dirty")},
        "machine": {"cpu": cpu_model(), "cores": os.cpu_count(), "system": platform.platform()},
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
    }
    if all(measure_of(result["found"]["curves"]) == "returns" for result in results):
        study = replace(study, measure="returns")
    table = study_cells(results, study.measure)
    first = [row[: 4 + ("world" in table[0])] for row in table]
    write_owned(folder / "results.json", owner, len(rows), about | {"rows": results})
    beside = published_cells(results)
    tables = [table, *([beside] if beside else [])]
    write_atomically(folder / "table.md", "\n".join(f"{study_table(one)}\n" for one in tables).encode())
    pictures = {"": save_figure(folder / "study.png", study_figure(results, study))}  # no row has this name
    pictures |= {row_name(one): row.folders[0] / "adaptation.png" for one, row in zip(results, rows, strict=True)}
    told = answer(results, study)
    write_atomically(folder / "study.html", study_page(study, told, beside or first, table, pictures).encode())
    return "\n\n".join([told, aligned(first), *([aligned(beside)] if beside else [])])


def answer(results: Sequence[Result], study: StudyConfig) -> str:
    """The question of a study and, for each world of its evaluations, a sentence that answers it: the best variant with
    its interval, and whether the others are below it. Fewer than `ENOUGH` runs decide nothing."""
    lines, label = [study.question], LABELS[study.measure]
    for world in dict.fromkeys(result["test"] for result in results):
        here = [result for result in results if result["test"] == world]
        finals = {result["variant"]: result["found"]["final"] for result in here}
        numbers = {name: final[shown_part(final)][study.measure] for name, final in finals.items()}
        best, *others = sorted(numbers, key=lambda name: numbers[name]["mean"], reverse=True)
        near = [name for name in others if numbers[name]["high"] >= numbers[best]["low"]]
        count = min(len(result["runs"]) for result in here)
        runs = f"{count} {'run' if study.splits else 'seed'}{'s' * (count != 1)}"
        told = [f"{name} {interval_text(numbers[name])}" for name in (best, *(near or others)[:1])]
        where = f"{world}: " if world else ""
        parts = [f"{where}{label.capitalize()} over the last quarter of the episodes: {', '.join(told)}"]
        if others:
            undecided = f"undecided with {runs}" + (", because these intervals overlap" if near else "")
            parts.append(undecided if near or count < ENOUGH else f"{best} is best with {runs}")
        if count < ENOUGH:
            parts.append(f"{runs} {'is' if count == 1 else 'are'} too few: give {ENOUGH} or more")
        lines.append("; ".join(parts) + ".")
    return "\n".join(lines)


def study_page(study: StudyConfig, told: str, first: Cells, table: Cells, pictures: Mapping[str, Path]) -> str:
    """Page of a study that needs no other file: its answer, its picture and the `first` columns; folded, the whole
    table and the picture of the first run of each row."""
    question, *sentences = map(html.escape, told.splitlines())
    kind = "data:image/png;base64,"
    shown = {
        name: f'<img alt="{html.escape(name)}" src="{kind}{b64encode(path.read_bytes()).decode()}">'
        for name, path in pictures.items()
        if path.exists()
    }
    lines = [f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{question}</title><style>{_STYLE}</style>']
    lines += [f"<h1>{question}</h1>", *(f"<p>{sentence}</p>" for sentence in sentences)]
    lines += [_html_table(first), shown.pop("")]
    folded = {"all numbers": _html_table(table)} | {f"{name}, first run": image for name, image in shown.items()}
    lines += [f"<details><summary>{html.escape(name)}</summary>{part}</details>" for name, part in folded.items()]
    return "\n".join(lines)


def _html_table(table: Cells) -> str:
    rows = [
        "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
        for row, tag in zip(table, ["th", *["td"] * len(table)], strict=False)
    ]
    return f"<div><table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table></div>"


def result_of(row: Row) -> Json:
    """Numbers of a row over all its seeds. Raises `PipelineError` if its evaluations are not of its models."""
    for folder, parts in zip(row.folders, row.models, strict=True):
        sidecars = [sidecar for part in parts for sidecar in part.glob("*-*.json")]
        trained = {read_json(sidecar, {"state_sha256": str})["state_sha256"] for sidecar in sidecars}
        if not trained.issuperset(read_results(folder)[0]["checkpoint"].split("+")):
            models = ", ".join(map(str, parts))
            raise PipelineError(f"{folder}/results.json is of another model than those in {models}: remove it")
    seconds = [took for parts in row.models if (took := training_seconds(parts)) is not None]
    updates = [sum(read_owned(part / "finished.json", {})[2] for part in parts) for parts in row.models]
    states = [session["git"] for parts in row.models for part in parts for session in sessions_of(part)]
    revisions = {f"{state['revision']}{'+' if state['dirty'] else ''}" for state in states if state["revision"]}
    return {name: getattr(row, name) for name in ("variant", "test", "x", "line", "published")} | {
        "runs": [folder.parent.name for folder in row.folders],
        "updates": round(np.mean(updates)),
        "training_seconds": float(np.mean(seconds)) if seconds else None,
        "trained_at": sorted(revisions),  # commits, with a plus sign if there were uncommitted changes
        "found": combined(row.folders, row.config.evaluation, row.config.seed),
    }


def sessions_of(folder: Path) -> list[Json]:
    """Sessions of the run that finished in `folder`."""
    return read_sessions(folder / "run.json", read_owned(folder / "finished.json", {})[1])


def training_seconds(parts: Sequence[Path]) -> float | None:
    """Training time of the models in the folders `parts` together; None if one was interrupted, because some of its
    work was done twice, or does not say when it ended."""
    seconds = 0.0
    for folder in parts:
        sessions = sessions_of(folder)
        if len(sessions) > 1:
            return None
        started, ended = (sessions[0].get(name) for name in ("started", "ended"))
        if not ended:  # of an earlier version
            return None
        seconds += (datetime.fromisoformat(ended) - datetime.fromisoformat(started)).total_seconds()
    return seconds


def cpu_model() -> str:
    """Name of the processor, as far as the system knows it."""
    info = Path("/proc/cpuinfo")
    named = re.search(r"^model name\s*:\s*(.+)", info.read_text() if info.exists() else "", re.MULTILINE)
    return named[1] if named else platform.processor() or platform.machine()


def study_cells(results: Sequence[Result], measure: str) -> Cells:
    """Table with a header and a row for each result. Columns that are empty in all rows are left out."""
    rows = [_cells(result, measure) for result in results]
    columns = [name for name in rows[0] if any(row[name] != NOTHING for row in rows)]
    return [columns, *([row[name] for name in columns] for row in rows)]


def published_cells(results: Sequence[Result]) -> Cells:
    """Table of our results and published ones, of all policies in each row that has published ones; empty if none
    has."""
    rows: Cells = []
    asked = [(one, measure) for one in results for measure in dict.fromkeys(p["measure"] for p in one["published"])]
    for result, measure in asked:
        published = [one for one in result["published"] if one["measure"] == measure]
        ours = ours_beside(result["found"], measure)
        for name in dict.fromkeys([*ours, *(one["label"] for one in published)]):
            others = [[f"{one['value']:g}", one["source"]] for one in published if one["label"] == name]
            about = [result["variant"], name, published_measure(measure), ours.get(name, NOTHING)]
            rows += [[*about, *cited] for cited in others or [[NOTHING, NOTHING]]]
    return [["variant", "policy", "measure", "ours", "published", "source"], *rows] if rows else []


def published_measure(measure: str | int) -> str:
    """Name of the `measure` of published results."""
    return f"return, episode {measure}" if isinstance(measure, int) else _PUBLISHED[measure]


def ours_beside(found: Mapping[str, Any], measure: str | int) -> dict[str, str]:
    """Our results in the `measure` of published ones, by policy, first the model."""
    curves, part = {name: of for name, of in found["curves"].items() if "tasks" not in name}, shown_part(found["final"])
    if measure == "total":
        ours = {name: f"{sum(of['returns']['mean']):.1f}" for name, of in curves.items()}
        return {"model": _interval(found["final"][part]["total"], 1)} | ours
    at = measure - 1 if isinstance(measure, int) else -1
    of_model = {end: values[at] for end, values in found["curves"][PARTS[part]]["returns"].items()}
    return {"model": _interval(of_model, 2)} | {name: f"{of['returns']['mean'][at]:.2f}" for name, of in curves.items()}


def study_table(table: Cells) -> str:
    """Markdown of a table."""
    head, *rows = [[cell.replace("|", "\\|") for cell in row] for row in table]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows))


def _cells(result: Result, measure: str) -> dict[str, str]:
    part, seconds = shown_part(result["found"]["final"]), result["training_seconds"]
    final, curve = result["found"]["final"][part], shown_curve(result, measure)["mean"]
    training, near = result["found"]["final"].get("train"), final.get("episodes_to_90")
    won = measure_of(result["found"]["curves"]) == "success"
    return {
        "variant": result["variant"],
        "world": result["test"] or NOTHING,
        f"{LABELS[measure]}, last quarter": _interval(final[measure], 3),
        f"episode {EARLY}": f"{curve[EARLY - 1]:.3f}" if len(curve) >= EARLY else NOTHING,
        "steps to goal": f"{final['steps_to_goal']['mean']:.2f}" if won else NOTHING,
        "scaled return": _interval(final.get(SCALED), 3),
        "tasks": part.replace("_", "-"),
        "training tasks": f"{training[measure]['mean']:.3f}" if training else NOTHING,
        "steps above the optimum": _interval(_found(result, "differences", "optimum", "steps_to_goal"), 2),
        "fraction of optimum": _interval(final.get("fraction_of_optimum"), 3),
        "normalised area": _interval(final.get("area"), 3),
        "episodes to 90 %": NOTHING if near is None else str(near["episode"] or "never"),
        "goals solved": _interval(final["fraction_solved"] if won else None, 2),
        "goals solved at .9": _interval(final.get("fraction_solved_90") if won else None, 2),
        "after first success": _interval(final.get("success_after_first"), 3),
        f"cells visited by episode {COVERED}": _covered(result, "coverage", COVERED),
        "of these by memory": _covered(result, "coverage_gain", COVERED),
        "new cells above a blind replay": _covered(result, "off_plan_gain", 0),
        f"moved goal, episode {LATER}": _interval(_found(result, *MOVED), 3),
        "updates": str(result["updates"]),
        "training": NOTHING if seconds is None else f"{seconds:.0f} s",
    }


def _found(result: Result, *keys: str) -> Any:
    """Part of the results under these keys, one in the other; None if there is none."""
    return reduce(lambda part, key: part.get(key) if part else None, keys, result["found"])


def _covered(result: Result, section: str, episode: int) -> str:
    """Coverage by the model without a goal, or what its context adds to it, by the end of an episode (0: the last)."""
    curve = _found(result, section, COVERAGE_KEPT)
    return _interval({key: curve[key][episode - 1] for key in ("mean", "low", "high")} if curve else None, 3)


def _interval(number: Mapping[str, Any] | None, digits: int) -> str:
    return NOTHING if number is None else interval_text(number, digits)
