"""Report of a study: the numbers of every row (`plan.Row`) over its seeds, a Markdown table and a picture."""

import os
import platform
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from icrl.config.paths import PROJECT
from icrl.config.root import Config
from icrl.contracts import Json, PipelineError
from icrl.evaluation.measures import LATER
from icrl.evaluation.protocol import COVERAGE_KEPT, shown_part
from icrl.evaluation.report import combined, read_results
from icrl.evaluation.tables import LABELS, interval_text
from icrl.plots.study_plots import Result, shown_curve, study_figure
from icrl.plots.style import save_figure
from icrl.runs.device import recorded
from icrl.runs.files import identity_of, read_json, read_owned, write_atomically, write_owned
from icrl.runs.record import git_state, read_sessions
from icrl.studies.plan import Row

EARLY = 10  # the episode that shows how quick adaptation is
COVERED = 4  # the episode by the end of which a covering plan has seen the default room
NOTHING = "-"


def write_report(folder: Path, config: Config, rows: Sequence[Row]) -> str:
    """Write `results.json`, `table.md` and `study.png` of a finished study into `folder`; returns the table."""
    results = [result_of(row) for row in rows]
    evaluations = [read_results(part)[1].run for row in rows for part in row.folders]
    owner = identity_of("study", config, recorded(config).keys() - {"name", "root"}, {"evaluations": evaluations})
    about = {
        "config": recorded(config),
        "reported_at": {key: value for key, value in git_state(PROJECT).items() if key in ("revision", "dirty")},
        "machine": {"cpu": cpu_model(), "cores": os.cpu_count(), "system": platform.platform()},
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
    }
    table = study_table(results, config.study.measure)
    write_owned(folder / "results.json", owner, len(rows), about | {"rows": results})
    write_atomically(folder / "table.md", f"{table}\n".encode())
    save_figure(folder / "study.png", study_figure(results, config.study))
    return table


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
    states = [session["git"] for parts in row.models for part in parts for session in _sessions(part)]
    revisions = {f"{state['revision']}{'+' if state['dirty'] else ''}" for state in states if state["revision"]}
    return {name: getattr(row, name) for name in ("variant", "test", "x", "line")} | {
        "runs": [folder.parent.name for folder in row.folders],
        "updates": round(np.mean(updates)),
        "training_seconds": float(np.mean(seconds)) if seconds else None,
        "trained_at": sorted(revisions),  # commits, with a plus sign if there were uncommitted changes
        "found": combined(row.folders, row.config.evaluation, row.config.seed),
    }


def _sessions(folder: Path) -> list[Json]:
    """Sessions of the run that finished in `folder`."""
    return read_sessions(folder / "run.json", read_owned(folder / "finished.json", {})[1])


def training_seconds(parts: Sequence[Path]) -> float | None:
    """Training time of the models in the folders `parts` together; None if one was interrupted, because some of its
    work was done twice."""
    seconds = 0.0
    for folder in parts:
        sessions = _sessions(folder)
        if len(sessions) > 1:
            return None
        end = (folder / "finished.json").stat().st_mtime
        seconds += end - datetime.fromisoformat(sessions[0]["started"]).timestamp()
    return seconds


def cpu_model() -> str:
    """Name of the processor, as far as the system knows it."""
    info = Path("/proc/cpuinfo")
    named = re.search(r"^model name\s*:\s*(.+)", info.read_text() if info.exists() else "", re.MULTILINE)
    return named[1] if named else platform.processor() or platform.machine()


def study_table(results: Sequence[Result], measure: str) -> str:
    """Markdown table with a line for each result. Columns that are empty in all lines are left out."""
    rows = [_cells(result, measure) for result in results]
    columns = [name for name in rows[0] if any(row[name] != NOTHING for row in rows)]
    lines = [columns, ["---"] * len(columns), *([row[name].replace("|", "\\|") for name in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(result: Result, measure: str) -> dict[str, str]:
    part, seconds = shown_part(result["found"]["final"]), result["training_seconds"]
    final, curve = result["found"]["final"][part], shown_curve(result, measure)["mean"]
    training, near = result["found"]["final"].get("train"), final.get("episodes_to_90")
    return {
        "variant": result["variant"],
        "world": result["test"] or NOTHING,
        "tasks": part.replace("_", "-"),
        f"{LABELS[measure]}, last quarter": _interval(final[measure], 3),
        f"episode {EARLY}": f"{curve[EARLY - 1]:.3f}" if len(curve) >= EARLY else NOTHING,
        "training tasks": f"{training[measure]['mean']:.3f}" if training else NOTHING,
        "steps to goal": f"{final['steps_to_goal']['mean']:.2f}",
        "steps above the optimum": _interval(_above_optimum(result["found"]), 2),
        "fraction of optimum": _interval(final.get("fraction_of_optimum"), 3),
        "normalised area": _interval(final.get("area"), 3),
        "episodes to 90 %": NOTHING if near is None else str(near["episode"] or "never"),
        "goals solved": _interval(final["fraction_solved"], 2),
        "goals solved at .9": _interval(final.get("fraction_solved_90"), 2),
        "after first success": _interval(final.get("success_after_first"), 3),
        f"cells visited by episode {COVERED}": _covered(result["found"], "coverage"),
        "of these by memory": _covered(result["found"], "coverage_gain"),
        "new cells above a blind replay": _covered(result["found"], "off_plan_gain", -1),
        f"moved goal, episode {LATER}": _interval(_moved(result["found"]), 3),
        "updates": str(result["updates"]),
        "training": NOTHING if seconds is None else f"{seconds:.0f} s",
    }


def _covered(found: Mapping[str, Any], section: str, episode: int = COVERED - 1) -> str:
    """Coverage of the model without a goal, or what its context adds to it."""
    curve = found.get(section, {}).get(COVERAGE_KEPT)
    return _interval({key: curve[key][episode] for key in ("mean", "low", "high")} if curve else None, 3)


def _above_optimum(found: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Steps to the goal minus those of the optimum on the same tasks."""
    return found.get("differences", {}).get("optimum", {}).get("steps_to_goal")


def _moved(found: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Success of the model some episodes after the goal moved."""
    return found.get("moved_goal", {}).get("model", {"final": {}})["final"].get(f"success_{LATER}_after_move")


def _interval(number: Mapping[str, Any] | None, digits: int) -> str:
    return NOTHING if number is None else interval_text(number, digits)
