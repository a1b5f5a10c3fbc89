"""Pictures of an evaluation, as PNG files and beside its curves. E episodes, N tasks."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter
from torch import Tensor

from icrl.contracts import Json
from icrl.envs.core import TensorEnv
from icrl.evaluation.diagnostics import diagnostics
from icrl.evaluation.measures import best_of, measure_of, scale_of
from icrl.evaluation.protocol import BEFORE, PARTS, shown_part
from icrl.evaluation.report import Curves, all_curves, probes_of
from icrl.evaluation.tables import LABELS
from icrl.plots import style
from icrl.runs.metrics import CurvesConfig, MetricLogger
from icrl.runs.writers import clear
from icrl.spaces import EnvSpec

SIZE = (8.0, 7.2)  # inches of a picture of tasks
NO_VALUE_COLOR = "#E4E4E4"
FEW_TASKS = 60  # a curve of at most this many tasks has markers
LARGEST_LABELLED_SIZE = 17  # values are not readable in larger rooms
SQUEEZED = 0.5  # share of an axis below which the range of the model has a panel of its own
OF_SUCCESS = {"success", "steps_to_goal"}  # curves that say nothing without a success
AGAIN = (0, (5, 1.5))  # dashes of curves with a colour that another one has
INSET = 0.05  # of an outline in its cell

Part = tuple[Tensor, Sequence[float]]  # tasks `[N, task_dim]` and their success, empty if only the tasks are known


class Panel(NamedTuple):
    """One pair of axes of an adaptation figure."""

    ylabel: str
    curves: Mapping[str, style.Curve]  # by name, with their intervals
    references: Mapping[str, Sequence[float]]  # by name, the value of each episode
    ends: tuple[float, float] | None = None  # of the y axis, if something is cut off
    scale: tuple[float, float] | None = None  # values that are 0 and 1 on a second y axis
    best: str = ""  # name of the second one


def adaptation_figure(panels: Sequence[Panel], *, title: str, xlabel: str = "episode") -> Figure:
    """Performance of policies over episodes 1 .. E: a panel for each measure and one legend; 1200 x 700 pixels."""
    figure, all_axes = style.new_panels(title, 1, len(panels))
    lines: style.Handles = {}
    for axes, panel in zip(all_axes, panels, strict=True):
        num_episodes = max(len(curve["mean"]) for curve in panel.curves.values())
        dots = "o" if num_episodes <= style.FEW_POINTS else None
        for index, (name, curve) in enumerate(panel.curves.items()):
            again, kind = divmod(index, len(style.COLORS))
            look = {"linewidth": 2.2, "marker": dots, "linestyle": AGAIN if again else "-"}
            lines[name] = style.draw_curve(axes, curve, style.COLORS[kind], **look)
        lines |= style.draw_references(axes, panel.references)
        style.episode_axis(axes, xlabel, panel.ylabel)
        axes.set_xlim(0.5, num_episodes + 0.5)
        axes.set_ylim(panel.ends)
        if panel.scale:
            style.scaled_axis(axes, panel.scale, f"scaled: 0 random play, 1 {panel.best}")
    style.legend_below(figure, lines)
    return figure


def write_figures(
    folder: Path, env: TensorEnv, results: Json, learners: Collection[str], options: CurvesConfig
) -> None:
    """Write the pictures and curves of the evaluation of a run into `folder`.

    Always `adaptation.png` and `goals.png`; `probes.png` if there are other decodings or ablations, and those of
    diagnostics. Random play, `learners` and the optimum are drawn as references."""
    clear(folder, anew=True)  # left by an evaluation that was interrupted
    figures = _curve_figures(env, results, [one for one in learners if one != BEFORE])  # that is drawn as a model
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
    """Panels of the success, and of the measure that adds most to it. Without any success these are the returns,
    and again in the range of the model if random play would squeeze it."""
    episode = "pull" if spec.success == "best_action" and spec.max_episode_steps == 1 else "episode"
    if measure_of(curves) == "returns":
        return adaptation_figure(_of_returns(curves, references), title=title, xlabel=episode)
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


def _of_returns(curves: Mapping[str, Curves], references: Sequence[str]) -> list[Panel]:
    returns = {name: of_policy["returns"] for name, of_policy in curves.items()}
    best, near = best_of(curves), [returns[name] for name in returns if name in (*PARTS.values(), best_of(curves))]
    panel = panel_of("return", returns, references)._replace(scale=scale_of(curves), best=best)
    low, high = min(min(curve["low"]) for curve in near), max(max(curve["high"]) for curve in near)
    if high - low > SQUEEZED * (high - min(min(curve["mean"]) for curve in returns.values())):
        return [panel]
    margin = 0.05 * (high - low)
    return [panel, panel._replace(ylabel="return, range of the model", ends=(low - margin, high + margin))]


def panel_of(label: str, curves: Mapping[str, style.Curve], references: Sequence[str]) -> Panel:
    """Panel of `curves` by policy, of which those of `references` are drawn without their intervals."""
    policies = {name: curve for name, curve in curves.items() if name not in references}
    return Panel(label, policies, {name: curves[name]["mean"] for name in references})


def success_figure(
    env: TensorEnv, train: Part, held_out: Part, development: Part, *, title: str, label: str = LABELS["success"]
) -> Figure:
    """Success, or what the `label` says, on the tasks of three parts, 800 x 720 pixels: a map of the room if the tasks
    have cells, else a curve for each part from its best to its worst task. A cell shows the mean over its tasks, and is
    outlined if all of them are held out, or all are development tasks."""
    named = {"held-out tasks": held_out, "training tasks": train, "development tasks": development}
    cells = [part.tolist() for tasks, _ in named.values() if (part := env.goal_cell(tasks)) is not None]
    if cells:
        values: dict[int, list[float]] = {}
        for part, (_, success) in zip(cells, named.values(), strict=True):
            for cell, value in zip(part, success, strict=False):
                values.setdefault(cell, []).append(value)
        in_held_out, in_train, in_development = map(set, cells)
        several = any(len(of_cell) > 1 for of_cell in values.values())
        outlined = {
            "held-out tasks": in_held_out - in_train - in_development,
            "development tasks": in_development - in_held_out - in_train,
        }
        means = {cell: float(np.mean(of_cell)) for cell, of_cell in values.items()}
        return _map_figure(env, means, outlined, title + (f", mean by {env.goal_cell_name}" if several else ""))
    figure, (axes,) = style.new_panels(title, size=SIZE)
    lines: style.Handles = {}
    for (name, (_, success)), color in zip(named.items(), style.PALETTE, strict=False):
        if num := len(success):
            share = (np.arange(num) + 0.5) / num  # so that parts of different sizes fill one axis
            marks: dict[str, Any] = {"marker": "o" if num <= FEW_TASKS else None, "markersize": 5, "linewidth": 2.2}
            (lines[f"{name} ({num})"],) = axes.plot(share, np.sort(success)[::-1], color=color, **marks)
    axes.set(xlim=(0, 1), ylim=(-0.02, 1.02) if label == LABELS["success"] else None)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    style.tidy(axes, "tasks, from best to worst", label)
    style.legend_below(figure, lines)
    return figure


def _map_figure(env: TensorEnv, means: Mapping[int, float], outlined: Mapping[str, set[int]], title: str) -> Figure:
    """Room with the mean of each goal cell that has one, outlines (those of the second kind dashed) and the start."""
    figure, (axes,) = style.new_panels(title, size=SIZE)
    size = env.spec.width
    cells, labelled = np.array([means.get(cell, np.nan) for cell in range(size**2)]), size <= LARGEST_LABELLED_SIZE
    mesh = axes.pcolormesh(
        np.ma.masked_invalid(cells).reshape(size, size),
        cmap=colormaps[style.COLORMAP].with_extremes(bad=NO_VALUE_COLOR),
        vmin=0.0,
        vmax=1.0,
        edgecolors="white" if labelled else "none",
    )
    if labelled:
        brightness = mesh.to_rgba(cells)[:, :3] @ (0.299, 0.587, 0.114)
        font = {"ha": "center", "va": "center", "fontsize": min(13, 110 / size)}
        for cell, mean in means.items():
            color = "white" if brightness[cell] < 0.5 else "black"
            axes.text(cell % size + 0.5, cell // size + 0.5, f"{mean:.2f}", color=color, **font)
    handles: style.Handles = {}
    edge: dict[str, Any] = {"edgecolor": style.HELD_OUT_COLOR, "linewidth": max(1.2, min(3.0, 27 / size))}
    for (name, kind), dashes in zip(outlined.items(), ("-", "--"), strict=True):
        for cell in kind:
            corner, side = (cell % size + INSET, cell // size + INSET), 1 - 2 * INSET
            handles[name] = axes.add_patch(Rectangle(corner, side, side, fill=False, linestyle=dashes, **edge))
    if len(env.starts) == 1:
        start = int(env.cell(env.observe(env.starts), torch.zeros(1)))
        place = start % size + 0.5, start // size + 0.5
        (handles["start"],) = axes.plot(*place, "o", color="#333333", markersize=min(14, 130 / size))
    style.legend_below(figure, handles)
    axes.set(xlim=(0, size), ylim=(size, 0), aspect="equal", xlabel="column", ylabel="row")
    ticks = np.arange(0, size, 1 if labelled else 8)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks + 0.5, [str(tick) for tick in ticks])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    figure.colorbar(mesh, ax=axes, shrink=0.8)
    return figure
