"""Leaderboard: evaluations that were checked against their own episodes, one row for each recipe in each world.

leaderboard.json    {"rows": [...]}, with numbers that are computed again from the episodes
leaderboard.md      the same as a table
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from icrl.app.compose import load_config
from icrl.app.root import Config
from icrl.config.modules import recorded_options
from icrl.config.options import quoted, refuse, replace, walk
from icrl.contracts import ConfigError, Json, PipelineError
from icrl.evaluation.measures import best_of, measure_of, tail_of
from icrl.evaluation.report import EPISODES, RESULTS, all_curves, read_results
from icrl.evaluation.tables import DIGITS, LABELS, interval_text
from icrl.extensions.studies.combined import combined
from icrl.extensions.studies.plan import trained_for
from icrl.extensions.studies.report import Cells, sessions_of, study_table, training_seconds
from icrl.runs.checkpoint import FINISHED
from icrl.runs.files import Identity, check_owner, content_of, only_writer, read_json, write_atomically, write_json

TABLE, MARKDOWN = "leaderboard.json", "leaderboard.md"
TOLERANCE = 1e-6  # of a mean that is computed again
HEAD = ("world", "measure", "model", "to reach", "random", "episodes", "splits x seeds", "minutes", "commit", "machine")
_ENDS = ("mean", "low", "high")
_OF_ONE_RUN = ("name", "root", "presets", "histories", "run", "num_threads", "seed", "tasks.seed")
_SIDECAR = {"state_sha256": str, "description": {"tasks": {"all": [[float]], "train": [int]}}}


class Evaluated(NamedTuple):
    """An evaluation that was checked."""

    folder: Path
    config: Config
    run: str  # digest of its options and its model
    models: list[Path]  # folders of what was trained for it, if they are still beside it

    @property
    def recipe(self) -> Json:
        """Options that seeds and splits of one recipe share, by key."""
        options = {key: value for key, value, declared in walk(self.config) if key == "code" or not declared.may_change}
        options = {key: value for key, value in options.items() if key not in _OF_ONE_RUN}
        return options | {"number of histories": len(self.config.histories)}


def checked(folder: Path) -> Evaluated:
    """The evaluation in `folder`. Raises `PipelineError`, which says what is wrong, unless its files are whole, its
    numbers those of its episodes, and its held-out tasks new to a model whose training is finished."""
    refuse(not (folder / RESULTS).exists(), f"add={folder}: no evaluation there, relative to the working directory")
    with content_of(folder, PipelineError):
        results, owner = read_results(folder)
        config = recorded_options(Config, results["config"], folder / RESULTS)
        _check_kind(folder, config, owner.program, results)
        _check_numbers(folder, config, results)
        with np.load(folder / EPISODES, allow_pickle=False) as arrays:
            check_owner(folder / EPISODES, Identity(*map(str, arrays["owner"])), owner)
        models, splits = _models_beside(folder, config, results["checkpoint"])
        for part in models:
            refuse(not (part / FINISHED).exists(), f"{folder}: {part} is not finished: finish it, and evaluate again")
        known = {tuple(task) for part in ("train", "development") for task in results.get(f"{part}_tasks", [])}
        known |= {tuple(split["all"][task]) for split in splits for task in split["train"]}  # also those not played
        both = [task for task in results["held_out_tasks"] if tuple(task) in known]
        what = f"{folder}: the held-out tasks {quoted(both)} are training or development tasks too"
        refuse(both, f"{what}; they must be tasks that the model was not trained on")
        return Evaluated(folder, config, owner.run, models)


def _check_kind(folder: Path, config: Config, program: str, results: Json) -> None:
    """Raise `ConfigError` unless a finished model was evaluated on held-out tasks of the world of its training."""
    options = config.evaluation
    refuse(program != "evaluate", f"{folder}: {program} wrote these results: must be results of evaluate")
    tasks = f"{folder}: evaluation.tasks={options.tasks}: must be an evaluation of held-out tasks"
    refuse(options.tasks != "test" or "held_out" not in results["final"], f"{tasks}, evaluation.tasks=test")
    away = f"{folder}: names no training tasks: must be an evaluation in the training world"
    refuse("train_tasks" not in results, away)
    update = f"{folder}: evaluation.checkpoint={options.checkpoint}: this update may be of an unfinished training"
    refuse(isinstance(options.checkpoint, int), f"{update}: must be last or best")


def _check_numbers(folder: Path, config: Config, results: Json) -> None:
    """Raise `ConfigError` unless the means in `results` are those of the episodes in `folder`."""
    again = combined([folder], replace(config.evaluation, num_bootstrap=100), config.seed)  # of means, not intervals
    there = _means(again)
    for name, mean in _means(results).items():
        must = there.get(name, mean)  # numbers of other versions and extensions are not shown
        same = np.shape(mean) == np.shape(must) and np.allclose(mean, must, 0, TOLERANCE, equal_nan=True)
        what = f"{folder / RESULTS}: the mean of {', '.join(name)} is {quoted(mean)}"
        refuse(not same, f"{what}: must be that of the episodes, {quoted(must)}")


def _means(results: Json) -> dict[tuple[str, ...], Any]:
    """Means by section, policy and measure."""
    return {
        (section, name, measure): number["mean"]
        for section in ("final", "curves")
        for name, measures in results[section].items()
        for measure, number in measures.items()
        if isinstance(number, dict) and "mean" in number
    }


def _models_beside(folder: Path, config: Config, checkpoint: str) -> tuple[list[Path], list[Json]]:
    """Folders of the run's models, and the splits of their tasks, if the evaluated `checkpoint` is among them."""
    run = folder.resolve().parent.parent / config.run
    parts = [run / part for part in trained_for(config.policy, config.finetune)]
    sidecars = [read_json(path, _SIDECAR) for part in parts for path in sorted(part.glob("*-*.json"))]
    if not {one["state_sha256"] for one in sidecars}.issuperset(checkpoint.split("+")):
        return [], []
    return parts, [one["description"]["tasks"] for one in sidecars]


def rows_of(evaluations: Sequence[Evaluated]) -> list[Json]:
    """A row for each recipe among the `evaluations`. Raises `PipelineError` if those of one cannot be combined."""
    recipes = [one.recipe for one in evaluations]
    firsts = [number for number, recipe in enumerate(recipes) if recipes.index(recipe) == number]
    return [_row([one for one in evaluations if one.recipe == recipes[first]]) for first in firsts]


def _row(group: Sequence[Evaluated]) -> Json:
    config, folders = group[0].config, [one.folder for one in group]
    found = combined(folders, config.evaluation, config.seed)
    twice = f"add={','.join(map(str, folders))}: some are evaluations of the same run"
    refuse(len({one.run for one in group}) < len(group), f"{twice}: must be of different runs")
    curves = all_curves(found)
    measure, best, episodes = measure_of(curves), best_of(curves), found["protocol"]["num_episodes"]

    def late(name: str) -> float | None:
        means = curves[name][measure]["mean"] if name in curves else []
        return float(np.mean(means[-tail_of(episodes) :])) if means else None

    sessions = [session for one in group for part in _recorded(one) for session in sessions_of(part)]
    seconds = [training_seconds(one.models) for one in group if one.models and {*one.models} <= {*_recorded(one)}]
    known = [one for one in seconds if one is not None]
    states = [session["git"] for session in sessions if session["git"]["revision"]]
    machines = [", ".join(host["gpus"]) or f"{host['cores']} CPU cores" for host in (one["host"] for one in sessions)]
    commands = [session["command"] for part in _recorded(group[0]) for session in sessions_of(part)[:1]]
    return {
        "world": world_of(config),
        "measure": measure,
        "model": {end: found["final"]["held_out"][measure][end] for end in _ENDS},
        "best": best,
        "reach": late(best),
        "random": late("random"),
        "episodes": episodes,
        "splits": sorted({one.config.tasks.seed for one in group}),
        "seeds": sorted({one.config.seed for one in group}),
        "minutes": float(np.mean(known)) / 60 if known else None,
        "commits": sorted({f"{state['revision'][:7]}{'+' if state['dirty'] else ''}" for state in states}),
        "machine": "; ".join(dict.fromkeys(machines)),
        "command": " && ".join(dict.fromkeys(shlex.join(["python", *command[1:]]) for command in commands)),
        "runs": sorted(one.run for one in group),
        "folders": list(map(str, folders)),
    }


def _recorded(one: Evaluated) -> list[Path]:
    """Folders with a record of what made the model: its source agents, then its trainings."""
    sources = [part.parent.parent / name / "source" for part in one.models[:1] for name in one.config.histories]
    return [part for part in (*sources, *one.models) if (part / "run.json").exists() and (part / FINISHED).exists()]


def world_of(config: Config) -> str:
    """Name of the world's preset, and the options of the world and its tasks that differ from it; without such a preset
    here, the name of the world and what differs from its defaults."""
    try:
        name = config.env.variant
        usual = {key: value for key, value, _ in walk(load_config([f"env={name}"]))}
    except ConfigError:
        name, kinds = config.env.name, {"env": type(config.env), "tasks": type(config.tasks)}
        fields = [(group, *one) for group, kind in kinds.items() for one in kind.model_fields.items()]
        usual = {f"{group}.{key}": field.get_default(call_default_factory=True) for group, key, field in fields}
    given = [option for option in walk(config) if option[0].startswith(("env.", "tasks.")) and not option[2].may_change]
    ignored = (*_OF_ONE_RUN, "env.variant")
    changed = {key: value for key, value, _ in given if usual.get(key) != value and key not in ignored}
    return ", ".join([name, *(f"{key}={quoted(value)}" for key, value in changed.items())])


def read_rows(folder: Path) -> list[Json]:
    """Rows of the leaderboard in `folder`, none if there is none. Raises `PipelineError` if it is damaged or of another
    version."""
    path, form = folder / TABLE, {"rows": [{"runs": [str], "folders": [str], "model": {end: float for end in _ENDS}}]}
    with content_of(path, PipelineError):
        rows = read_json(path, form)["rows"] if path.exists() else []
        cells_of(rows)  # other versions may have other columns
    return rows


def add_rows(folder: Path, rows: Sequence[Json]) -> None:
    """Add `rows` to the leaderboard in `folder`, in place of those with the same runs. Raises `ConfigError` if a row
    has one of these runs and others beside them."""
    with only_writer(folder):
        before, runs = read_rows(folder), {run for row in rows for run in row["runs"]}
        for old in before:
            one_row = f"{folder / TABLE} has a row of {len(old['runs'])} runs: add them together with what you add now"
            folders = ",".join(old["folders"])
            refuse(runs & {*old["runs"]} and {*old["runs"]} - runs, f"{one_row}, add=[{folders},...]")
        kept = [old for old in before if not runs & {*old["runs"]}]
        every = sorted([*kept, *rows], key=lambda row: (row["world"], row["measure"], -row["model"]["mean"]))
        write_json(folder / TABLE, {"rows": every})
        write_atomically(folder / MARKDOWN, f"# Leaderboard\n\n{study_table(cells_of(every))}\n".encode())


def cells_of(rows: Sequence[Json]) -> Cells:
    """Table of the `rows`, with a header; the last column has the commands."""
    return [[*HEAD, "command"], *([" ".join(cell.split()) for cell in _cells(row)] for row in rows)]


def _cells(row: Json) -> list[str]:
    digits, splits = DIGITS[row["measure"]], len(row["splits"])
    reach, random = ("" if row[key] is None else f"{row[key]:.{digits}f}" for key in ("reach", "random"))
    return [
        *(row["world"], f"{LABELS[row['measure']]}, last quarter", interval_text(row["model"], digits)),
        *(f"{reach} ({row['best']})" if row["best"] else "", random, str(row["episodes"])),
        *(f"{splits} x {len(row['runs']) / splits:g}", "" if row["minutes"] is None else f"{row['minutes']:.0f}"),
        *(" and ".join(row["commits"]), row["machine"], f"`{row['command']}`" if row["command"] else ""),
    ]
