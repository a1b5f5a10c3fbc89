"""Pictures of an evaluation, as PNG files and beside its curves. E episodes, N tasks."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from torch import Tensor

from icrl.contracts import Json
from icrl.envs.core import TensorEnv
from icrl.evaluation.diagnostics import MAPS, diagnostics
from icrl.evaluation.measures import best_of, measure_of, scale_of
from icrl.evaluation.protocol import BEFORE, PARTS, shown_part
from icrl.evaluation.report import Curves, all_curves, probes_of
from icrl.evaluation.tables import LABELS
from icrl.plots import style
from icrl.runs.metrics import CurvesConfig, MetricLogger
from icrl.runs.writers import clear
from icrl.spaces import EnvSpec

SIZE = (8.0, 7.2)  # inches of a picture of tasks
FEW_TASKS = 60  # a curve of at most this many tasks has markers
OF_SUCCESS = {"success", "steps_to_goal"}  # curves that say nothing without a success
AGAIN = (0, (5, 1.5))  # dashes of curves with a colour that another one has

Part = tuple[Tensor, Sequence[float]]  # tasks `[N, task_dim]` and their success, empty if only the tasks are known


class Panel(NamedTuple):
    """One pair of axes of an adaptation figure."""

    ylabel: str
    curves: Mapping[str, style.Curve]  # by name, with their intervals
    references: Mapping[str, Sequence[float]]  # by name, the value of each episode
    scale: tuple[float, float] | None = None  # values that are 0 and 1 on a second y axis
    best: str = ""  # name of the second one


def adaptation_figure(
    panels: Sequence[Panel], *, title: str, xlabel: str = "episode", order: Sequence[str] = ()
) -> Figure:
    """Performance of policies over episodes 1 .. E: a panel for each measure and one legend; 1200 x 700 pixels. The
    place of a policy in `order` chooses its colour; without it, its place in the panel does."""
    figure, all_axes = style.new_panels(title, 1, len(panels))
    lines: style.Handles = {}
    for axes, panel in zip(all_axes, panels, strict=True):
        num_episodes = max(len(curve["mean"]) for curve in panel.curves.values())
        dots = "o" if num_episodes <= style.FEW_POINTS else None
        places = {name: place for place, name in enumerate(order or panel.curves)}
        for name, curve in panel.curves.items():
            again, kind = divmod(places[name], len(style.COLORS))
            above = {"zorder": 2 - places[name] / 100}  # the first is the model on held-out tasks
            look = {"linewidth": 2.2, "marker": dots, "linestyle": AGAIN if again else "-", **above}
            lines[name] = style.draw_curve(axes, curve, style.COLORS[kind], **look)
        lines |= style.draw_references(axes, panel.references)
        style.episode_axis(axes, xlabel, panel.ylabel)
        axes.set_xlim(0.5, num_episodes + 0.5)
        if panel.scale:
            style.scaled_axis(axes, panel.scale, f"scaled: 0 random play, 1 {panel.best}")
    style.legend_below(figure, lines)
    return figure


def write_figures(folder: Path, env: TensorEnv, results: Json, beside: Collection[str], options: CurvesConfig) -> None:
    """Write the pictures and curves of the evaluation of a run into `folder`.

    Always `adaptation.png` and `goals.png`; `probes.png` if there are other decodings or ablations, and those of
    diagnostics. Random play, policies `beside` the model and the optimum are drawn as references."""
    clear(folder, anew=True)  # left by an evaluation that was interrupted
    figures = _curve_figures(env, results, [one for one in beside if one != BEFORE])  # that is drawn as a model
    no_tasks = torch.empty(0, env.all_tasks().shape[1], dtype=torch.long)
    parts: dict[str, Part] = {part: (no_tasks, []) for part in ("train", "held_out", "development")}
    measure = measure_of(results["curves"])
    for part, final in results["final"].items():
        parts[part] = torch.tensor(results[f"{part}_tasks"]), final[f"{measure}_per_task"]
    title = f"{LABELS[measure].capitalize()} on each task over the last episodes"
    figures["goals"] = success_figure(env, **parts, title=title, label=LABELS[measure])
    with MetricLogger(folder, options=options) as logger:
        for picture, figure in figures.items():
            pixels = style.figure_to_array(figure)
            style.save_picture(folder / f"{picture}.png", pixels)
            logger.image(picture, pixels, 0)
        for policy, measures in all_curves(results).items():
            own = policy.replace(", ", "-").replace(" ", "_").replace("'", "")
            is_run = policy in (*PARTS.values(), BEFORE, "random", "optimum")  # runs share a chart; they stay few
            with MetricLogger(folder / own, options=options) if is_run else nullcontext(logger) as curves:
                for key in [key for key in measures if measure != "returns" or key not in OF_SUCCESS]:
                    prefix, name = ("adaptation", key) if is_run else (f"adaptation_{key}", own)
                    for episode, value in enumerate(measures[key]["mean"], start=1):
                        curves.scalars(prefix, {name: value}, episode)


def _curve_figures(env: TensorEnv, results: Json, learners: Collection[str]) -> dict[str, Figure]:
    """Pictures of curves over episodes, by the names of their files."""
    curves, probes = results["curves"], probes_of(results)
    references = [policy for policy in dict.fromkeys(("random", *learners, "optimum")) if policy in curves]
    title = "In-context learning with frozen weights"
    figures = {"adaptation": _adaptation(env.spec, curves, references, title)}
    if probes:
        compared = {policy: curves[policy] for policy in (PARTS[shown_part(results["final"])], *references)} | probes
        title = "The same model with other contexts and decodings"
        figures["probes"] = _adaptation(env.spec, compared, references, title)
    for diagnostic in diagnostics():
        figures |= diagnostic.figures(results, ("random", *learners))
    return figures


def _adaptation(spec: EnvSpec, curves: Mapping[str, Curves], references: Sequence[str], title: str) -> Figure:
    """Panels of the success, and of the measure that adds most to it; without any success a panel of the returns."""
    episode = "pull" if spec.success == "best_action" and spec.max_episode_steps == 1 else "episode"
    if measure_of(curves) == "returns":
        panel = panel_of("return", {name: of_policy["returns"] for name, of_policy in curves.items()}, references)
        panel = panel._replace(scale=scale_of(curves), best=best_of(curves))
        return adaptation_figure([panel], title=title, xlabel=episode)
    if all("regret" in of_policy for of_policy in curves.values()):
        shown = {"best arm": "success", "regret so far": "regret"}
    elif all(np.allclose(of_policy["success"]["mean"], of_policy["returns"]["mean"]) for of_policy in curves.values()):
        shown = {"success": "success", "moves of a game" if spec.points[0] else "steps to goal": "steps_to_goal"}
    else:
        shown = {"success": "success", "return": "returns"}
    panels = [
        panel_of(label, {name: of_policy[measure] for name, of_policy in curves.items()}, references)
        for label, measure in shown.items()
    ]
    return adaptation_figure(panels, title=title, xlabel=episode)


def panel_of(label: str, curves: Mapping[str, style.Curve], references: Sequence[str]) -> Panel:
    """Panel of `curves` by policy, of which those of `references` are drawn without their intervals."""
    policies = {name: curve for name, curve in curves.items() if name not in references}
    return Panel(label, policies, {name: curves[name]["mean"] for name in references})


def success_figure(
    env: TensorEnv, train: Part, held_out: Part, development: Part, *, title: str, label: str = LABELS["success"]
) -> Figure:
    """Success, or what the `label` says, on the tasks of three parts, 800 x 720 pixels: a curve for each part from its
    best to its worst task, unless an extension can draw a map of this world."""
    named = {"held-out tasks": held_out, "development tasks": development, "training tasks": train}  # as in adaptation
    for module in MAPS:
        if figure := import_module(module).map_of_tasks(env, named, title):
            return figure
    figure, (axes,) = style.new_panels(title, size=SIZE)
    lines: style.Handles = {}
    for (name, (_, success)), color in zip(named.items(), style.PALETTE, strict=False):
        if num := len(success):
            share = (np.arange(num) + 0.5) / num  # so that parts of different sizes fill one axis
            marks: dict[str, Any] = {"marker": "o" if num <= FEW_TASKS else None, "markersize": 5, "linewidth": 2.2}
            marks["zorder"] = 2 - len(lines) / 100  # held-out tasks above the others
            (lines[f"{name} ({num})"],) = axes.plot(share, np.sort(success)[::-1], color=color, **marks)
    axes.set(xlim=(0, 1), ylim=(-0.02, 1.02) if label == LABELS["success"] else None)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    style.tidy(axes, "tasks, from best to worst", label)
    style.legend_below(figure, lines)
    return figure
