"""The pictures of an evaluation: adaptation curves and the success on each task, as PNG and on TensorBoard."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from icrl.contracts import EnvSpec, Json
from icrl.envs.core import TensorEnv
from icrl.evaluation.measures import PARTS, shown_part
from icrl.evaluation.report import Curves, all_curves, probes_of
from icrl.plots.plots import (
    Curve,
    Panel,
    Reference,
    adaptation_figure,
    figure_to_array,
    save_figure,
)
from icrl.plots.task_maps import success_figure
from icrl.runs.metrics import MetricLogger


def write_figures(folder: Path, name: str, env: TensorEnv, results: Json, learners: Collection[str]) -> None:
    """Write `adaptation.png`, `goals.png`, where there are other decodings or ablations `probes.png`, where there is
    coverage `coverage.png`, and TensorBoard curves over episodes of the run `name` into `folder`. Random play,
    `learners` and the optimum are drawn as references, what the others are to be compared with."""
    for stale in folder.rglob("events.*"):
        stale.unlink()  # left by an evaluation that was interrupted
    curves, probes = results["curves"], probes_of(results)
    references = [name for name in dict.fromkeys(("random", *learners, "optimum")) if name in curves]
    figures = {
        "adaptation": _adaptation(env.spec, curves, references, f"In-context learning with frozen weights: {name}")
    }
    if probes:
        compared = {name: curves[name] for name in (PARTS[shown_part(results["final"])], *references)} | probes
        figures["probes"] = _adaptation(env.spec, compared, references, f"Other decodings and contexts: {name}")
    if coverage := results.get("coverage"):
        figures["coverage"] = _coverage(coverage, learners, f"Exploration without a goal: {name}")
    figures["goals"] = _goals(env, results)
    summaries = MetricLogger(folder)
    for picture, figure in figures.items():
        save_figure(folder / f"{picture}.png", figure)
        summaries.image(picture, figure_to_array(figure), 0)
    summaries.close()
    for policy, measures in all_curves(results).items():  # a run each, so that one chart holds all policies
        board = MetricLogger(folder / policy.replace(", ", "-").replace(" ", "_").replace("'", ""))
        for measure, curve in measures.items():
            for episode, value in enumerate(curve["mean"], start=1):
                board.scalars("adaptation", {measure: value}, episode)
        board.close()


def _adaptation(spec: EnvSpec, curves: Mapping[str, Curves], references: Sequence[str], title: str) -> Figure:
    pulls = spec.success == "best_action" and spec.max_episode_steps == 1
    panels = [_panel(label, measure, curves, references) for label, measure in _shown(spec, curves)]
    return adaptation_figure(panels, title=title, xlabel="pull" if pulls else "episode")


def _coverage(coverage: Mapping[str, Mapping[str, list[float]]], learners: Collection[str], title: str) -> Figure:
    """Cells visited by the end of each episode: the model's curves beside the means of those it is compared with."""
    references = [name for name in ("random", *learners) if name in coverage]
    curves = [
        Curve(name, *(np.array(curve[key]) for key in ("mean", "low", "high")))
        for name, curve in coverage.items()
        if name not in references
    ]
    compared = [Reference(name, np.array(coverage[name]["mean"])) for name in references]
    return adaptation_figure([Panel("cells visited", curves, compared)], title=title)


def _goals(env: TensorEnv, results: Json) -> Figure:
    no_tasks = torch.empty(0, env.all_tasks().shape[1], dtype=torch.long)
    train, held_out, development = (
        (torch.tensor(results[f"{part}_tasks"]), results["final"][part]["success_per_task"])
        if part in results["final"]
        else (no_tasks, [])
        for part in ("train", "held_out", "development")
    )
    return success_figure(env, train, held_out, development, title="Success on each task over the last episodes")


def _shown(spec: EnvSpec, curves: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and measures of the panels: success, and what tells most beside it."""
    if spec.success == "best_action":
        return [("best arm", "success"), ("regret so far", "regret")]
    if all(np.allclose(of["success"]["mean"], of["returns"]["mean"]) for of in curves.values()):
        steps = "moves of a game" if spec.points[0] else "steps to goal"
        return [("success", "success"), (steps, "steps_to_goal")]  # the return says what success says
    return [("success", "success"), ("return", "returns")]


def _panel(label: str, measure: str, curves: Mapping[str, Curves], references: Sequence[str]) -> Panel:
    lines = [
        Curve(name, *(np.array(curve[measure][key]) for key in ("mean", "low", "high")))
        for name, curve in curves.items()
        if name not in references
    ]
    return Panel(label, lines, [Reference(name, np.array(curves[name][measure]["mean"])) for name in references])
