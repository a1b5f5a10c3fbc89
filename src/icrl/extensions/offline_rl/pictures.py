"""Pictures of offline RL. N steps of histories, G goals, V views of each, C cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from icrl.app.root import Config
from icrl.contracts import Batch, ConfigError
from icrl.data.windows import check_stores, open_stores
from icrl.envs import make_env
from icrl.envs.core import TensorEnv
from icrl.evaluation.in_context import Adaptation, play_episodes
from icrl.evaluation.references import references_of
from icrl.evaluation.report import read_results
from icrl.extensions.curves.adaptation_curves import shared_references, shown_curve
from icrl.extensions.offline_rl.awr import AdvantageWeightedRegression
from icrl.extensions.offline_rl.critic import ValueNetwork
from icrl.extensions.offline_rl.critics import check_critic, load_critic
from icrl.extensions.offline_rl.options import OfflineConfig
from icrl.nn.gpt import Window, context_of
from icrl.plots import style
from icrl.plots.figures import Panel, adaptation_figure
from icrl.runs.checkpoint import open_model
from icrl.runs.device import device_of
from icrl.runs.distributed import Ranks
from icrl.runs.files import check_same
from icrl.training.program import UNWEIGHTED, RunContext

NUM_GOALS = 2
VIEWS = {0: "not found yet", 1: "reached once", 4: "reached 4 times"}  # by how often the goal was reached
NUM_BATCHES = 16  # whose weights are shown: the first that the policy learned from
WORST = 0.005  # part of the steps that is left out: advantages far below all others
NUM_PARTS = 20  # of a window, each with a mean weight of its own
BLUE, RED, GREEN, PINK = style.PALETTE[:4]
GREY = "#BBBBBB"


# ---- values of a critic


class CellValues(NamedTuple):
    """Values of a critic, `[C]` each."""

    value: Tensor  # V
    best: Tensor  # the action with the largest of min(Q1, Q2)


def write_value_maps(config: Config) -> Path:
    """Draw the values of the run's critic while a searcher finds up to `NUM_GOALS` held-out goals, as `values.png`
    beside the critic; returns its path. Raises `ConfigError` for a world without a searcher."""
    device = device_of(config)
    with closing(make_env(config.env, device)) as env:
        searcher = references_of(env).get("searcher")
        if searcher is None:
            raise ConfigError(f"env.name={config.env.name}: maps of values need a dark room, which has a searcher")
        critic, about = load_critic(config, device)
        check_critic(config, about["description"], {"config": config.model_dump()})
        tasks = env.all_tasks().to(device)[about["description"]["tasks"]["held_out"]]
        played, steps = play_episodes(searcher, env, tasks, 1, config.evaluation.num_episodes, config.seed)
        ages = ages_at(played)
        last = np.where(ages[:, -1] < config.model.context_len, ages[:, -1], -ages[:, -1])
        goals = [goal for goal in np.argsort(-last, kind="stable").tolist() if ages[goal, -1] >= 0][:NUM_GOALS]
        if not goals:
            allowed = f"must be enough for a searcher to reach a held-out goal {max(VIEWS)} times"
            raise ConfigError(f"evaluation.num_episodes={config.evaluation.num_episodes}: {allowed}")
        lived = Window.of(steps)  # [T, G]
        obs = env.observe(torch.arange(env.spec.width**2, device=device))
        maps = [
            [cell_values(critic.target, lived.at((np.s_[:age], goal)), obs) for age in ages[goal]] for goal in goals
        ]
        figure = maps_figure(env, tasks[goals], maps, f"V in context, and the best action by Q: {config.run}")
    return style.save_figure(config.run_folder / "ilql" / "values.png", figure)


def ages_at(played: Adaptation) -> NDArray[np.int64]:
    """Steps lived when the goal was reached as often as `VIEWS` say, `[G, V]`, in the first stream of each goal; -1 if
    it never was. They are those at the start of an episode; in the first view it is the first that reaches the goal."""
    reached, ends = played.success[:, 0].cumsum(1), np.pad(played.lengths[:, 0].cumsum(1), ((0, 0), (1, 0)))
    times = np.array(list(VIEWS))
    enough = reached[:, None] >= np.maximum(times, 1)[:, None]  # [G, V, E]
    episode = enough.argmax(2) + (times > 0)
    return np.where(enough.any(2), np.take_along_axis(ends, episode, axis=1), -1).astype(np.int64)


@torch.no_grad()
def cell_values(critic: ValueNetwork, lived: Window, obs: Tensor) -> CellValues:
    """Values of each of `obs` `[C]` if the next episode began there, after the `lived` steps `[W]`, the newest of which
    fit into a context. Where all episodes begin on one cell, the values of the
    others are those of starts that the critic never saw."""
    num_kept = min(len(lived.timestep), critic.config.context_len - 1)
    window = Window.empty(critic.spec, len(obs), num_kept + 1, obs.device)
    window.write(np.s_[:, :num_kept], lived.at(np.s_[len(lived.timestep) - num_kept :]))
    window.obs[:, -1] = obs
    values = critic(context_of(window))
    return CellValues(values.value[:, -1], values.least_q[:, -1].argmax(-1))


def maps_figure(env: TensorEnv, tasks: Tensor, maps: Sequence[Sequence[CellValues]], title: str) -> Figure:
    """A row for each of `tasks` `[G, task_dim]` and a column for each view, 1200 x 800 pixels: V as colour, the best
    action as an arrow (a dot if it leads nowhere), a star on each goal, a ring on the only start."""
    figure, panels = style.new_panels(title, len(tasks), len(VIEWS), (12.0, 8.0))
    handles: style.Handles = {}
    every = torch.stack([cells.value for cells in chain.from_iterable(maps)])
    norm, size, start = Normalize(float(every.min()), float(every.max())), env.spec.width, env.starts.cpu()
    views = product(tasks, VIEWS.values())
    for axes, (task, name), (value, best) in zip(panels, views, chain.from_iterable(maps), strict=True):
        axes.imshow(value.cpu().reshape(size, -1), cmap=style.COLORMAP, norm=norm)
        cells = torch.arange(len(best), device=best.device)
        after = env.outcomes(task, cells, best).state_index[..., 0].cpu() % len(best)
        x, y = (cells % size).cpu(), (cells // size).cpu()
        arrow = {"color": "white", "edgecolor": "black", "linewidth": 0.6, "pivot": "mid"}
        axes.quiver(x, y, after % size - x, after // size - y, angles="xy", scale_units="xy", scale=1.7, **arrow)
        goals = np.array(env.map_view(task).goals)
        star: dict[str, Any] = {"color": style.HELD_OUT_COLOR, "markersize": 17, "mec": "white"}
        (handles["goal"],) = axes.plot(goals % size, goals // size, "*", **star)
        if len(start) == 1:
            ring: dict[str, Any] = {"fillstyle": "none", "markersize": 20, "markeredgewidth": 2.5}
            (handles["start"],) = axes.plot(start % size, start // size, "o", color=PINK, **ring)
        axes.set_title(f"{env.label(task)}, {name}", fontsize=11)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    figure.colorbar(ScalarMappable(norm, style.COLORMAP), ax=panels, label="V", shrink=0.8)
    style.legend_below(figure, handles)
    return figure


# ---- weights of imitated steps


class Weights(NamedTuple):
    """Steps of histories in advantage-weighted regression, `[N]` each."""

    advantage: style.Floats
    free: style.Floats  # logarithm of the weight before the threshold
    weight: style.Floats
    part: NDArray[np.int64]  # of the window, 0 .. NUM_PARTS - 1
    optimal: NDArray[np.bool_]  # whether the action is the planner's


def write_weight_plot(config: OfflineConfig) -> Path:
    """Draw which steps of the histories the extracted policy imitates, as `weights.png` beside it; returns its path.
    Raises `ConfigError` if the policy was extracted with other options or critic."""
    device, folder = device_of(config), config.folder("logs") / "awr"
    about = open_model(folder, "last", "extract_policy", device)[1]["description"]
    check_same(config, about["config"], ("seed", "env", "tasks", "data", "model", "awr", "trainer"), str(folder))
    critic, values = load_critic(config, device)
    stores = open_stores(config)
    check_stores(stores, about["histories"], folder)
    if about["inputs"].get("critic") != values["state_sha256"]:
        raise ConfigError(f"{folder} was extracted from another critic than that of run={config.run}")
    mixture = RunContext(config, folder, device, Ranks(), about, stores).windows(UNWEIGHTED)
    objective, size = AdvantageWeightedRegression(config.awr, critic.target), config.trainer.mini_batch_size
    weights = weights_of(objective, [mixture.batch(config.seed, update, size) for update in range(NUM_BATCHES)])
    figure = weights_figure(weights, config.awr.advantage_threshold, "What is imitated")
    return style.save_figure(folder / "weights.png", figure)


def weights_of(objective: AdvantageWeightedRegression, batches: Sequence[Batch]) -> Weights:
    """Weights of all steps of `batches`."""
    parts = []
    for batch in batches:
        advantage = objective.advantage(batch).flatten()
        log_weight, free = objective.log_weights(advantage)
        length = batch.action.shape[1]
        part = (torch.arange(length) * NUM_PARTS // length).expand(batch.action.shape).flatten()
        optimal = (batch.action == batch.optimal_action).flatten()
        parts.append([column.cpu().numpy() for column in (advantage, free, log_weight.exp(), part, optimal)])
    return Weights(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def weights_figure(weights: Weights, threshold: float, title: str) -> Figure:
    """Left the advantages of all steps but the worst, plain and weighted; in the middle the weights before the
    `threshold`; right the mean weights of the planner's and of other actions over the window, late in which more of
    the task is known. 1200 x 700 pixels."""
    advantage, free, weight, part, is_optimal = weights
    effective, clipped = weight.sum() ** 2 / (weight**2).sum() / len(weight), (free > np.log(threshold)).mean()
    title = f"{title}; effective sample size {effective:.0%}, {clipped:.1%} clipped"
    figure, (left, middle, right) = style.new_panels(title, 1, 3)
    handles: style.Handles = {}
    given: Any = {"bins": 50, "range": (float(np.quantile(advantage, WORST)), float(advantage.max())), "density": True}
    outline: Any = {"weights": weight, "histtype": "step", "color": BLUE, "linewidth": 2.0}
    plain: Any = left.hist(advantage, **given, histtype="stepfilled", color=GREY)[2]
    weighted: Any = left.hist(advantage, **given, **outline)[2]
    handles |= {"all steps": plain[0], "by weight": weighted[0]}
    style.tidy(left, "advantage of the action taken", "density")
    middle.hist(free / np.log(10), 50, color=GREY)
    middle.set_yscale("log")
    handles["threshold"] = middle.axvline(np.log10(threshold), color=RED, linestyle=style.REFERENCE_DASHES[0])
    style.tidy(middle, "log10 of the weight before the threshold", "steps")
    for name, mask, color in (("planner's action", is_optimal, GREEN), ("others", ~is_optimal, PINK)):
        number = np.bincount(part[mask])
        mean = np.bincount(part[mask], weight[mask]) / np.maximum(number, 1)
        place = (np.arange(len(number)) + 0.5) / NUM_PARTS
        (handles[name],) = right.plot(place[number > 0], mean[number > 0], color=color, linewidth=2.2)
    right.set_ylim(bottom=0)
    style.tidy(right, "place in the window", "mean weight")
    style.legend_below(figure, handles, num_columns=5)
    return figure


def write_comparison(config: Config, folders: Mapping[str, Path], path: Path) -> None:
    """Draw the adaptation on held-out tasks of the evaluations in `folders`, by name, and the references they share."""
    with closing(make_env(config.env)) as env:
        second = ("steps to goal", "steps_to_goal") if env.spec.success == "goal" else ("return", "returns")
    results = {name: {"found": read_results(folder)[0]} for name, folder in folders.items()}
    panels = []
    for label, measure in (("success", "success"), second):
        curves = {name: shown_curve(result, measure) for name, result in results.items()}
        panels.append(Panel(label, curves, shared_references([*results.values()], measure)))
    style.save_figure(path, adaptation_figure(panels, title=f"Held-out tasks: {config.name}"))
