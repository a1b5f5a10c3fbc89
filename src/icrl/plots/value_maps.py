"""What a critic expects in a room while a goal gets known: maps of values in context.

G goals, V views of each, C cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from icrl.contracts import ConfigError
from icrl.envs import make_env
from icrl.envs.core import TensorEnv
from icrl.evaluation.in_context import Adaptation, play_episodes
from icrl.evaluation.references import references_of
from icrl.nn.critic import ValueNetwork
from icrl.nn.gpt import context_in, windows_of
from icrl.plots.charts import legend_below, new_figure
from icrl.plots.plots import COLORMAP, HELD_OUT_COLOR, PALETTE, save_figure
from icrl.runs.device import device_of, recorded
from icrl.training.critics import check_critic, load_critic

if TYPE_CHECKING:
    from icrl.config.root import Config

NUM_GOALS = 2
VIEWS = {0: "not found yet", 1: "reached once", 4: "reached 4 times"}  # by how often the goal was reached
SIZE = (12.0, 8.0)  # inches


class CellValues(NamedTuple):
    """`[C]` each."""

    value: Tensor  # V
    best: Tensor  # the action with the largest of min(Q1, Q2)


def write_value_maps(config: Config) -> Path:
    """Draw what the run's critic expects in the room while the searcher gets to know a held-out goal, for up to
    `NUM_GOALS` of them, as `values.png` beside the critic; returns the picture's path. Raises `ConfigError` for a world
    without a searcher, which is no square room."""
    device = device_of(config)
    with closing(make_env(config.env, device)) as env:
        searcher = references_of(env, config).get("searcher")
        if searcher is None:
            raise ConfigError(f"env.name={config.env.name}: maps of values are for dark rooms, which a searcher knows")
        critic, about = load_critic(config, device)
        check_critic(config, about["description"], {"config": recorded(config)})
        tasks = env.all_tasks().to(device)[about["description"]["tasks"]["held_out"]]
        played, steps = play_episodes(searcher, env, tasks, 1, config.evaluation.num_episodes, config.seed)
        ages = ages_at(played)
        last = np.where(ages[:, -1] < config.model.context_len, ages[:, -1], -ages[:, -1])
        goals = [goal for goal in np.argsort(-last, kind="stable").tolist() if ages[goal, -1] >= 0][:NUM_GOALS]
        if not goals:
            raise ConfigError(
                f"evaluation.num_episodes={config.evaluation.num_episodes}: must be enough for a searcher to reach a "
                f"held-out goal {max(VIEWS)} times"
            )
        lived = windows_of(steps.obs, steps.action, steps.reward, steps.timestep)  # [rows, T, G]
        obs = env.observe(torch.arange(env.spec.width**2, device=device))
        maps = [[cell_values(critic.target, lived[:, :age, goal], obs) for age in ages[goal]] for goal in goals]
        figure = maps_figure(env, tasks[goals], maps, f"V in context, and the best action by Q: {config.run}")
    path = config.run_folder / "ilql" / "values.png"
    save_figure(path, figure)
    return path


def ages_at(played: Adaptation) -> NDArray[np.int64]:
    """How many steps a stream has lived when, at the start of an episode, its goal was reached as often as `VIEWS` say;
    for the first, the episode in which it is reached for the first time. Of the first stream of each goal, `[G, V]`;
    -1: never."""
    reached, ends = played.success[:, 0].cumsum(1), np.pad(played.lengths[:, 0].cumsum(1), ((0, 0), (1, 0)))
    times = np.array(list(VIEWS))
    enough = reached[:, None] >= np.maximum(times, 1)[:, None]  # [G, V, E]
    episode = enough.argmax(2) + (times > 0)
    return np.where(enough.any(2), np.take_along_axis(ends, episode, axis=1), -1).astype(np.int64)


@torch.no_grad()
def cell_values(critic: ValueNetwork, lived: Tensor, obs: Tensor) -> CellValues:
    """What `critic` expects on each of `obs` `[C]`, as if the next episode began there, after the newest of the `lived`
    steps `[rows, W]` (see `gpt.windows_of`) that fit into a context. In a world with one start no episode begins
    on the other cells: there it is what the critic makes of a start that it never saw."""
    newest = lived[:, max(lived.shape[1] - critic.config.context_len + 1, 0) :]
    zero = torch.zeros_like(obs)[:, None]
    now = windows_of(obs[:, None], zero, zero, zero)  # [rows, C, 1]
    window = torch.cat([newest[:, None].expand(-1, len(obs), -1), now], dim=2)
    values = critic(context_in(critic.spec, window))
    return CellValues(values.value[:, -1], values.least_q[:, -1].argmax(-1))


def maps_figure(env: TensorEnv, tasks: Tensor, maps: Sequence[Sequence[CellValues]], title: str) -> Figure:
    """A row for each of `tasks` `[G, task_dim]`, a column for each view: V by colour, where the best action leads as an
    arrow, a dot where it leads nowhere; a star on what is to be found, a ring on the only start. 1200 x 800 pixels."""
    figure = new_figure(title, SIZE)
    handles: dict[str, Artist] = {}
    panels = figure.subplots(len(tasks), len(VIEWS), squeeze=False)
    every = torch.stack([cells.value for row in maps for cells in row])
    norm = Normalize(float(every.min()), float(every.max()))
    for task, row, views in zip(tasks, panels, maps, strict=True):
        for axes, cells, name in zip(row, views, VIEWS.values(), strict=True):
            axes.imshow(cells.value.cpu().reshape(env.spec.width, -1), cmap=COLORMAP, norm=norm)
            handles |= _draw_moves(axes, env, task, cells.best)
            axes.set_title(f"{env.label(task)}, {name}", fontsize=11)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
    figure.colorbar(ScalarMappable(norm, COLORMAP), ax=panels, label="V", shrink=0.8)
    legend_below(figure, handles)
    return figure


def _draw_moves(axes: Axes, env: TensorEnv, task: Tensor, best: Tensor) -> dict[str, Artist]:
    size, places = env.spec.width, torch.arange(len(best), device=best.device)
    after = env.outcomes(task, places, best).state_index[..., 0].cpu() % len(best)
    x, y = (places % size).cpu(), (places // size).cpu()
    style = {"color": "white", "edgecolor": "black", "linewidth": 0.6, "pivot": "mid"}
    axes.quiver(x, y, after % size - x, after // size - y, angles="xy", scale_units="xy", scale=1.7, **style)
    goals = np.array(env.map_view(task).goals)
    handles: dict[str, Artist] = {}
    (handles["goal"],) = axes.plot(goals % size, goals // size, "*", color=HELD_OUT_COLOR, markersize=17, mec="white")
    if len(env.starts) == 1:
        start = int(env.starts)
        (handles["start"],) = axes.plot(
            start % size, start // size, "o", color=PALETTE[3], fillstyle="none", markersize=20, markeredgewidth=2.5
        )
    return handles
