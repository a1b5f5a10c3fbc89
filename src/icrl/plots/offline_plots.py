"""Pictures of offline RL: how a critic learned, what a policy imitates, how policies compare.

N steps of histories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from numpy.typing import NDArray

from icrl.contracts import Batch, ConfigError
from icrl.data.mixture import check_stores, open_stores
from icrl.envs import make_env
from icrl.evaluation.saved_results import read_results
from icrl.objectives.awr import AdvantageWeightedRegression
from icrl.plots.charts import legend_below, new_figure, tidy
from icrl.plots.plots import (
    PALETTE,
    REFERENCE_COLOR,
    REFERENCE_DASHES,
    Curve,
    Floats,
    Panel,
    Reference,
    adaptation_figure,
    save_figure,
)
from icrl.plots.study_plots import shared_references, shown_curve
from icrl.plots.training_curves import SMOOTHED_PART, Scalars, read_scalars, running_mean
from icrl.runs.device import device_of
from icrl.runs.distributed import Ranks
from icrl.runs.identity import check_same
from icrl.training.critics import PROGRAM, load_critic, open_finished
from icrl.training.program import RunContext, unweighted

if TYPE_CHECKING:
    from icrl.config.root import Config

NUM_BATCHES = 16  # whose weights are shown: the first that the policy learned from
WORST = 0.005  # part of the steps whose advantages, far below all others, are left out
NUM_PARTS = 20  # of a window, each with a mean weight of its own
Q, V = ("Q", PALETTE[0]), ("V", PALETTE[1])
LEARNED = {  # by panel: tags of TensorBoard curves, and what they are about
    "mean absolute TD error": {"td_error": Q},
    "terms of the loss": {
        "q1": Q,
        "value": V,
        "conservative": ("conservative", PALETTE[2]),
        "imitation": ("imitation", PALETTE[3]),
    },
    "mean of Q and V": {"q": Q, "v": V},
    "largest |Q|": {"largest_q": Q},
}


class Weights(NamedTuple):
    """Steps of histories as advantage-weighted regression sees them, `[N]` each."""

    advantage: Floats
    free: Floats  # logarithm of the weight before the threshold
    weight: Floats
    part: NDArray[np.int64]  # of the window, 0 .. NUM_PARTS - 1
    optimal: NDArray[np.bool_]  # whether the action is the planner's


def write_value_curves(config: Config) -> Path:
    """Draw how the critic learned, from its event files, as `training.png` beside it; returns the picture's path.
    Raises `ConfigError` where its training is not finished, or was not logged."""
    folder = config.folder("logs") / "ilql"
    open_finished(folder, "last", PROGRAM, torch.device("cpu"))
    curves = read_scalars(folder)
    if "train/q_over_bound" not in curves:
        raise ConfigError(
            f"no curves in {folder}: it was trained with summaries.num_summaries=0 and summaries.summary_interval=0"
        )
    save_figure(folder / "training.png", curves_figure(curves, f"Training of values: {config.name}"))
    return folder / "training.png"


def curves_figure(curves: Scalars, title: str) -> Figure:
    """The curves of `LEARNED` that there are, over gradient updates, and what |Q| can be at most, where that is known;
    1200 x 700 pixels."""
    figure = new_figure(title)
    panels = np.ravel(figure.subplots(2, 2, sharex=True))
    handles: dict[str, Artist] = {}
    for axes, (label, tags) in zip(panels, LEARNED.items(), strict=True):
        for tag, (name, color) in tags.items():
            if found := curves.get(f"train/{tag}"):
                axes.plot(*found, color=color, alpha=0.3, linewidth=1.0)
                smooth = running_mean(found[1], SMOOTHED_PART)
                (handles[name],) = axes.plot(found[0], smooth, color=color, linewidth=2.2)
        axes.set_title(label, fontsize=13)
        tidy(axes, "gradient update" if axes in panels[2:] else "", "")
    panels[1].set_yscale("log")
    share = curves["train/q_over_bound"][1][-1]
    if share > 0:
        bound = curves["train/largest_q"][1][-1] / share
        handles["bound"] = panels[3].axhline(bound, color=REFERENCE_COLOR, linestyle=REFERENCE_DASHES[0])
    legend_below(figure, handles, num_columns=5)
    return figure


def write_weight_plot(config: Config) -> Path:
    """Draw which steps of the histories the extracted policy imitates, as `weights.png` beside it; returns the
    picture's path. Raises `ConfigError` where it was extracted with other options or from another critic."""
    device, folder = device_of(config), config.folder("logs") / config.awr.experiment_name
    about = open_finished(folder, "last", "extract_policy", device)[1]["description"]
    check_same(config, about["config"], ("seed", "env", "tasks", "data", "model", "awr", "trainer"), str(folder))
    critic, values = load_critic(config, device)
    stores = open_stores(config)
    check_stores(stores, about["histories"], folder)
    if about["inputs"].get("critic") != values["state_sha256"]:
        raise ConfigError(f"{folder} was extracted from another critic than that of run={config.run}")
    context = RunContext(config, folder, device, Ranks(), about, stores)
    mixture = context.windows(unweighted(config.objective))
    objective, size = AdvantageWeightedRegression(config.awr, critic.target), config.trainer.mini_batch_size
    weights = weights_of(objective, [mixture.batch(config.seed, update, size) for update in range(NUM_BATCHES)])
    figure = weights_figure(weights, config.awr.advantage_threshold, f"What is imitated: {config.name}")
    save_figure(folder / "weights.png", figure)
    return folder / "weights.png"


def weights_of(objective: AdvantageWeightedRegression, batches: Sequence[Batch]) -> Weights:
    """Of all steps of `batches`, each normalized by itself as in training."""
    parts = []
    for batch in batches:
        advantage = objective.advantage(batch).flatten()
        log_weight, free = objective.log_weights(advantage)
        part = (torch.arange(batch.obs.shape[1]) * NUM_PARTS // batch.obs.shape[1]).expand(batch.obs.shape).flatten()
        optimal = (batch.action == batch.optimal_action).flatten()
        parts.append([column.cpu().numpy() for column in (advantage, free, log_weight.exp(), part, optimal)])
    return Weights(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def weights_figure(weights: Weights, threshold: float, title: str) -> Figure:
    """Left the advantages of all steps but the worst, and the same if each counts by its weight; in the middle weights
    before the `threshold`; right the mean weight of the planner's actions and of others: late in a window more of the
    task is known. 1200 x 700 pixels."""
    advantage, free, weight = weights.advantage, weights.free, weights.weight
    effective = weight.sum() ** 2 / (weight**2).sum() / len(weight)
    figure = new_figure(
        f"{title}; effective sample size {effective:.0%}, {(free > np.log(threshold)).mean():.1%} clipped"
    )
    handles: dict[str, Artist] = {}
    left, middle, right = figure.subplots(1, 3)
    shown = float(np.quantile(advantage, WORST)), float(advantage.max())
    for name, by, style in (
        ("all steps", None, {"histtype": "stepfilled", "color": "#BBBBBB"}),
        ("by weight", weight, {"histtype": "step", "color": PALETTE[0], "linewidth": 2.0}),
    ):
        *_, (handles[name],) = left.hist(advantage, 50, shown, density=True, weights=by, **style)
    tidy(left, "advantage of the action taken", "density")
    middle.hist(free / np.log(10), 50, color="#BBBBBB")
    middle.set_yscale("log")
    handles["threshold"] = middle.axvline(np.log10(threshold), color=PALETTE[1], linestyle=REFERENCE_DASHES[0])
    tidy(middle, "log10 of the weight before the threshold", "steps")
    for name, mask, color in (
        ("planner's action", weights.optimal, PALETTE[2]),
        ("others", ~weights.optimal, PALETTE[3]),
    ):
        number = np.bincount(weights.part[mask])
        mean = np.bincount(weights.part[mask], weight[mask]) / np.maximum(number, 1)
        place = (np.arange(len(number)) + 0.5) / NUM_PARTS
        (handles[name],) = right.plot(place[number > 0], mean[number > 0], color=color, linewidth=2.2)
    right.set_ylim(bottom=0)
    tidy(right, "place in the window", "mean weight")
    legend_below(figure, handles, num_columns=5)
    return figure


def write_comparison(config: Config, folders: Mapping[str, Path], path: Path) -> None:
    """Draw the adaptation on held-out tasks that each of the evaluations in `folders` found, under its name, and the
    references they share."""
    with closing(make_env(config.env)) as env:
        second = ("steps to goal", "steps_to_goal") if env.spec.success == "goal" else ("return", "returns")
    results = [{"found": read_results(folder)[0]} for folder in folders.values()]
    panels = []
    for label, measure in (("success", "success"), second):
        curves = [
            Curve(name, *(np.array(shown_curve(result, measure)[key]) for key in ("mean", "low", "high")))
            for name, result in zip(folders, results, strict=True)
        ]
        references = [Reference(name, np.array(mean)) for name, mean in shared_references(results, measure).items()]
        panels.append(Panel(label, curves, references))
    save_figure(path, adaptation_figure(panels, title=f"Held-out tasks: {config.name}"))
