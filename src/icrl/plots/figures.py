"""Pictures of an evaluation: adaptation curves and the success on each task, as PNG files and on TensorBoard."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

from icrl.contracts import EnvSpec, Json
from icrl.envs.core import TensorEnv
from icrl.evaluation.protocol import PARTS, shown_part
from icrl.evaluation.report import Curves, all_curves, probes_of
from icrl.plots import style
from icrl.plots.task_maps import success_figure
from icrl.runs.metrics import MetricLogger


class Panel(NamedTuple):
    """One pair of axes of an adaptation figure."""

    ylabel: str
    curves: Mapping[str, style.Curve]  # by name, with their intervals
    references: Mapping[str, Sequence[float]]  # by name, the value of each episode


def adaptation_figure(panels: Sequence[Panel], *, title: str, xlabel: str = "episode") -> Figure:
    """Performance of policies over episodes 1 .. E: a panel for each measure and one legend; 1200 x 700 pixels."""
    figure = style.new_figure(title)
    lines: style.Handles = {}
    for axes, panel in zip(np.ravel(figure.subplots(1, len(panels))), panels, strict=True):
        num_episodes = max(len(curve["mean"]) for curve in panel.curves.values())
        for index, (name, curve) in enumerate(panel.curves.items()):
            color = style.COLORS[index % len(style.COLORS)]
            lines[name] = style.draw_curve(axes, curve, color, linewidth=2.2, marker=style.marker(num_episodes))
        lines |= style.draw_references(axes, panel.references)
        style.episode_axis(axes, xlabel, panel.ylabel)
        axes.set_xlim(0.5, num_episodes + 0.5)
    style.legend_below(figure, lines)
    return figure


def write_figures(folder: Path, name: str, env: TensorEnv, results: Json, learners: Collection[str]) -> None:
    """Write the pictures and TensorBoard curves of the evaluation of run `name` into `folder`.

    Always `adaptation.png` and `goals.png`; `probes.png` if there are other decodings or ablations, and `coverage.png`
    if coverage was measured. Random play, `learners` and the optimum are drawn as references."""
    for stale in folder.rglob("events.*"):
        stale.unlink()  # left by an evaluation that was interrupted
    curves, probes = results["curves"], probes_of(results)
    references = [policy for policy in dict.fromkeys(("random", *learners, "optimum")) if policy in curves]
    title = f"In-context learning with frozen weights: {name}"
    figures = {"adaptation": _adaptation(env.spec, curves, references, title)}
    if probes:
        compared = {policy: curves[policy] for policy in (PARTS[shown_part(results["final"])], *references)} | probes
        figures["probes"] = _adaptation(env.spec, compared, references, f"Other decodings and contexts: {name}")
    if coverage := results.get("coverage"):
        others = [policy for policy in ("random", *learners) if policy in coverage]
        title = f"Exploration without a goal: {name}"
        figures["coverage"] = adaptation_figure([_panel("cells visited", coverage, others)], title=title)
    figures["goals"] = _goals(env, results)
    logger = MetricLogger(folder)
    for picture, figure in figures.items():
        style.save_figure(folder / f"{picture}.png", figure)
        logger.image(picture, style.figure_to_array(figure), 0)
    logger.close()
    for policy, measures in all_curves(results).items():  # a run each, so that one chart holds all policies
        logger = MetricLogger(folder / policy.replace(", ", "-").replace(" ", "_").replace("'", ""))
        for measure, curve in measures.items():
            for episode, value in enumerate(curve["mean"], start=1):
                logger.scalars("adaptation", {measure: value}, episode)
        logger.close()


def _adaptation(spec: EnvSpec, curves: Mapping[str, Curves], references: Sequence[str], title: str) -> Figure:
    pulls = spec.success == "best_action" and spec.max_episode_steps == 1
    panels = [
        _panel(label, {name: found[measure] for name, found in curves.items()}, references)
        for label, measure in _shown(spec, curves)
    ]
    return adaptation_figure(panels, title=title, xlabel="pull" if pulls else "episode")


def _panel(label: str, curves: Mapping[str, style.Curve], references: Sequence[str]) -> Panel:
    policies = {name: curve for name, curve in curves.items() if name not in references}
    return Panel(label, policies, {name: curves[name]["mean"] for name in references})


def _shown(spec: EnvSpec, curves: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Labels and measures of the panels: success, and the measure that adds most to it."""
    if spec.success == "best_action":
        return [("best arm", "success"), ("regret so far", "regret")]
    if all(np.allclose(found["success"]["mean"], found["returns"]["mean"]) for found in curves.values()):
        steps = "moves of a game" if spec.points[0] else "steps to goal"
        return [("success", "success"), (steps, "steps_to_goal")]  # the return equals the success
    return [("success", "success"), ("return", "returns")]


def _goals(env: TensorEnv, results: Json) -> Figure:
    no_tasks = torch.empty(0, env.all_tasks().shape[1], dtype=torch.long)
    train, held_out, development = (
        (torch.tensor(results[f"{part}_tasks"]), results["final"][part]["success_per_task"])
        if part in results["final"]
        else (no_tasks, [])
        for part in ("train", "held_out", "development")
    )
    return success_figure(env, train, held_out, development, title="Success on each task over the last episodes")
