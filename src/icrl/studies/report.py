"""What a study found: the numbers of every row over its seeds, a Markdown table, a picture.

A row is a variant in one of the worlds it is evaluated in (`study_plan.Row`).
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from icrl.config.paths import PROJECT
from icrl.contracts import Json, PipelineError
from icrl.evaluation.measures import shown_part
from icrl.evaluation.results import combined, read_results
from icrl.plots.plots import save_figure
from icrl.plots.study_plots import LABELS, shown_curve, study_figure
from icrl.runs.device import recorded
from icrl.runs.files import read_json, write_atomically
from icrl.runs.identity import Identity, identity_of, read_owned, write_owned
from icrl.runs.record import git_state, read_sessions
from icrl.studies.plan import Row

if TYPE_CHECKING:
    from icrl.config.root import Config

EARLY = 10  # the episode that shows how quick adaptation is
NOTHING = "-"

Results = Sequence[Mapping[str, Any]]


def write_report(folder: Path, config: Config, rows: Sequence[Row]) -> str:
    """Write `results.json`, `table.md` and `study.png` of a finished study into `folder`; returns the table."""
    results = [result_of(row) for row in rows]
    revision = git_state(PROJECT)
    about = {
        "config": recorded(config),
        "reported_at": {"revision": revision["revision"], "dirty": revision["dirty"]},
        "machine": {"cpu": cpu_model(), "cores": os.cpu_count(), "system": platform.platform()},
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
    }
    table = study_table(results, config.study.measure)
    write_owned(folder / "results.json", _owner_of(config, rows), len(rows), about | {"rows": results})
    write_atomically(folder / "table.md", f"{table}\n".encode())
    save_figure(folder / "study.png", study_figure(results, config.study))
    return table


def _owner_of(config: Config, rows: Sequence[Row]) -> Identity:
    """The study: its options, and the evaluations that it is about."""
    evaluations = [read_results(folder)[1].run for row in rows for folder in row.folders]
    return identity_of("study", config, recorded(config).keys() - {"name", "root"}, {"evaluations": evaluations})


def result_of(row: Row) -> Json:
    """The numbers of a row over all its seeds."""
    for folder, parts in zip(row.folders, row.models, strict=True):
        check_played(folder, parts)
    seconds = [took for parts in row.models if (took := training_seconds(parts)) is not None]
    updates = [sum(_finished(part)[1] for part in parts) for parts in row.models]
    return {
        "variant": row.variant,
        "test": row.test,
        "x": row.x,
        "line": row.line,
        "runs": [folder.parent.name for folder in row.folders],
        "updates": round(np.mean(updates)),
        "training_seconds": float(np.mean(seconds)) if seconds else None,
        "trained_at": sorted({revision for parts in row.models for part in parts for revision in revisions(part)}),
        "found": combined(row.folders, row.config.evaluation, row.config.seed),
    }


def check_played(folder: Path, parts: Sequence[Path]) -> None:
    """Raise `PipelineError` unless the results in `folder` are of models in the folders `parts`."""
    trained = {
        read_json(sidecar, {"state_sha256": str})["state_sha256"] for part in parts for sidecar in part.glob("*-*.json")
    }
    if not trained.issuperset(read_results(folder)[0]["checkpoint"].split("+")):
        raise PipelineError(
            f"{folder / 'results.json'} is of another model than those in {', '.join(map(str, parts))}: remove it, and "
            "the same command evaluates anew"
        )


def _finished(folder: Path) -> tuple[Identity, int]:
    """The run that ended in `folder`, and after how many updates."""
    _, owner, updates = read_owned(folder / "finished.json", {})
    return owner, updates


def _sessions(folder: Path) -> list[Json]:
    return read_sessions(folder / "run.json", _finished(folder)[0])


def revisions(folder: Path) -> list[str]:
    """The commits at which the model in `folder` was trained, as far as they are known, with a `+` where there were
    changes beside."""
    states = [session["git"] for session in _sessions(folder)]
    return [f"{state['revision']}{'+' if state['dirty'] else ''}" for state in states if state["revision"]]


def training_seconds(parts: Sequence[Path]) -> float | None:
    """How long the models in the folders `parts` were trained, one after the other; None where one of them was
    interrupted, and nobody knows how much was done twice."""
    seconds = 0.0
    for folder in parts:
        sessions = _sessions(folder)
        if len(sessions) > 1:
            return None
        end = (folder / "finished.json").stat().st_mtime
        seconds += end - datetime.fromisoformat(sessions[0]["started"]).timestamp()
    return seconds


def cpu_model() -> str:
    """The name of the processor, as well as the system knows it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def study_table(results: Results, measure: str) -> str:
    """Markdown: a line for each result. Columns that say nothing of any of them are left out."""
    cells = [_cells(result, measure) for result in results]
    columns = [name for name in cells[0] if any(row[name] != NOTHING for row in cells)]
    lines = [columns, ["---"] * len(columns), *([row[name] for name in columns] for row in cells)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(result: Mapping[str, Any], measure: str) -> dict[str, str]:
    """A line of the table, by column."""
    name, seconds = LABELS[measure], result["training_seconds"]
    part = shown_part(result["found"]["final"])
    final, curve = result["found"]["final"][part], shown_curve(result, measure)["mean"]
    familiar, near = result["found"]["final"].get("train"), final.get("episodes_to_90")
    return {
        "variant": _text(result["variant"]),
        "world": _text(result["test"]) or NOTHING,
        "tasks": part.replace("_", "-"),
        f"{name}, last quarter": _interval(final[measure], 3),
        f"episode {EARLY}": f"{curve[EARLY - 1]:.3f}" if len(curve) >= EARLY else NOTHING,
        "training tasks": f"{familiar[measure]['mean']:.3f}" if familiar else NOTHING,
        "steps to goal": f"{final['steps_to_goal']['mean']:.2f}",
        "fraction of optimum": _interval(final.get("fraction_of_optimum"), 3),
        "normalised area": _interval(final.get("area"), 3),
        "episodes to 90 %": NOTHING if near is None else str(near["episode"] or "never"),
        "goals solved": _interval(final["fraction_solved"], 2),
        "goals solved at .9": _interval(final.get("fraction_solved_90"), 2),
        "after first success": _interval(final.get("success_after_first"), 3),
        "updates": str(result["updates"]),
        "training": NOTHING if seconds is None else f"{seconds:.0f} s",
    }


def _interval(number: Mapping[str, Any] | None, digits: int) -> str:
    """A mean with its interval; nothing where there is none."""
    if number is None:
        return NOTHING
    mean, low, high = (f"{number[key]:.{digits}f}" for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def _text(label: str) -> str:
    return label.replace("|", "\\|")
