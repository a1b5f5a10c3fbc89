"""Live map: a policy acts in one stream of a world, and a notebook shows each step as it is taken.

>>> policy, room = icrl.load("logs/dark_room-quick"), icrl.make_env("dark_room", "env.size=5")  # doctest: +SKIP
>>> watch(live_frames(policy.policy, room, [(4, 0)], num_episodes=20))  # doctest: +SKIP
"""

import io
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from IPython.display import Image as Picture
from IPython.display import display
from matplotlib.ticker import MaxNLocator
from PIL import Image

from icrl.config.options import refuse
from icrl.contracts import ConfigError, Env, Policy
from icrl.envs.core import TensorEnv
from icrl.envs.rollout import Episodes, OpenEpisodes, Streams, finished_episodes, rollout, start_streams
from icrl.evaluation.in_context import seeds_of_play
from icrl.extensions.maps.render import caption, render_cells
from icrl.extensions.maps.tasks import read_task
from icrl.extensions.moved_goal.world import MovedGoal
from icrl.plots import style
from icrl.randomness import Noise, stream_seeds

SIDE = 320  # pixels of the longer side of the map, if its cells allow
HOLD = 4  # frames for which the end of an episode stays
CHART = 4.6  # inches, width of the chart of episodes


def live_frames(
    policy: Policy[Any],
    env: TensorEnv,
    task: Sequence[Any],
    num_episodes: int,
    seed: int = 0,
    then: Sequence[Any] | None = None,
) -> Iterator[style.Frame]:
    """Frames `[H, W, 3]` of one stream that begins with an empty context, each drawn right after its step was taken.

    The map is on the left, the steps to the goal of all episodes so far are on the right.

    `task` holds the numbers of the task; a cell may be given as (row, column). With `then` the goal moves: that task
    replaces the first one after half of the episodes. Raises `ConfigError` for a task that the world does not have, and
    for a world without a map."""
    refuse(num_episodes < 1, f"num_episodes={num_episodes}: must be at least 1")
    tasks = [_task_of(env, name, one) for name, one in (("task", task), ("then", task if then is None else then))]
    refuse(env.goal_cell(tasks[0]) is None, "env: this world has no map, so there is no live map of it")
    views = [env.map_view(one[0]) for one in tasks]
    num_before, spec = (num_episodes if then is None else num_episodes // 2), env.spec
    world: Env[Any] = MovedGoal(env, num_before)
    cell_pixels = max(4, SIDE // max(views[0].rows, views[0].columns))
    noise = Noise(stream_seeds(seed, 1, purpose=4))
    streams: Streams[Any, Any] = start_streams(policy, world, torch.cat(tasks, dim=1), seeds_of_play(seed, 1))
    progress, episodes, length = OpenEpisodes.none(1), list[Episodes](), spec.max_episode_steps
    walked, chart = list[int](), None
    while len(episodes) < num_episodes:
        played, streams = rollout(policy, world, streams, 1, noise)
        finished, progress = finished_episodes(played, progress, spec)
        walked = walked or [int(env.cell(played.obs, played.action))]
        walked.append(int(env.cell(played.next_obs, played.action)))
        number, view = len(episodes), views[len(episodes) >= num_before]
        trail = np.isin(np.arange(view.rows * view.columns), walked)[None]
        rewarded = np.array([bool((played.reward > 0).any())])
        drawn = render_cells(np.array(walked[-1:]), view, cell_pixels, rewarded, trail)
        room = caption(drawn, f"episode {number + 1}, step {len(walked) - 1}")[0]
        ended = len(finished.stream) > 0
        episodes += [finished] * ended
        if chart is None or ended:
            chart = _chart(episodes, num_episodes, length, num_before, room.shape[0])
        frame = np.concatenate([room, chart], axis=1)
        yield from [frame] * (1 + HOLD * ended)
        if ended:
            walked.clear()


def watch(frames: Iterable[style.Frame], frames_per_second: float = 20.0) -> None:
    """Show frames in one place of the output of a notebook's cell, each as soon as it is made, but at most so many a
    second. The last one stays."""
    shown, due = None, time.monotonic()
    for frame in frames:
        content = io.BytesIO()
        Image.fromarray(frame).save(content, format="png", compress_level=1)
        picture = Picture(data=content.getvalue(), format="png")
        time.sleep(max(0.0, due - time.monotonic()))
        due = time.monotonic() + 1 / frames_per_second
        if shown is None:
            shown = display(picture, display_id=True)
        else:
            shown.update(picture)


def _task_of(env: TensorEnv, name: str, given: Sequence[Any]) -> torch.Tensor:
    """The task `[1, task_dim]` with the `given` numbers."""
    try:
        return torch.tensor([read_task(env, given)])
    except ValueError as error:
        raise ConfigError(f"{name}={given}: {error}") from error


def _chart(episodes: Sequence[Episodes], num_episodes: int, length: int, moves_after: int, height: int) -> style.Frame:
    """Chart of `height` pixels: steps to the goal of each episode so far, which differ in shape if it was not found."""
    figure, (axes,) = style.new_panels("", size=(CHART, height / style.DPI))
    found = np.array([bool(one.success[0]) for one in episodes], dtype=bool)
    steps, numbers = np.array([one.steps_to_goal[0] for one in episodes]), np.arange(1, len(episodes) + 1)
    handles: style.Handles = {}
    looks: dict[str, Any] = {"linestyle": "none", "markersize": 7}
    (handles["found"],) = axes.plot(numbers[found], steps[found], "o", color=style.PALETTE[0], **looks)
    (handles["not found"],) = axes.plot(numbers[~found], steps[~found], "x", color=style.PALETTE[1], **looks)
    if moves_after < num_episodes:
        handles["goal moves"] = axes.axvline(moves_after + 0.5, **style.BASELINE)
    axes.set(xlim=(0.5, num_episodes + 0.5), ylim=(0, length + 1))
    style.episode_axis(axes, "episode", "steps to goal")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    style.legend_below(figure, handles)
    return style.figure_to_array(figure)
