"""Reward plug-ins: what a critic learns from, made of the rewards that were seen.

A plug-in is one of the functions `BUILT_IN`, or a Python file that defines `get_reward(history) -> float32 [T]`. It is
given whole lives, so that it may reward what a learner does over its episodes.
"""

import hashlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from icrl.contracts import ConfigError, EnvSpec, Json, PipelineError
from icrl.data.history_store import Histories
from icrl.data.weights import Floats
from icrl.runs.files import fits

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


class History(NamedTuple):
    """The life of one stream on one task, episode after episode: read-only columns `[T]`, and what world it is in."""

    obs: Integers
    action: Integers
    reward: Floats  # values, not indices
    next_obs: Integers  # what the action led to, before any reset
    timestep: Integers  # env steps since the last reset
    terminated: Booleans
    truncated: Booleans
    episode: Integers  # number of the episode that the step is in, from 0 on
    task: Integers  # [task_dim], a row of the table of all tasks
    spec: EnvSpec
    world: str  # env.name


GetReward = Callable[[History], Floats]


def identity(history: History) -> Floats:
    """The reward that was seen, r_t."""
    return history.reward


def step_penalty(history: History) -> Floats:
    """r_t - 1 / max_episode_steps: an episode without success costs at most 1."""
    return history.reward - np.float32(1 / history.spec.max_episode_steps)


def distance(history: History) -> Floats:
    """Potential-based shaping (Ng et al., 1999), undiscounted: r_t + Phi(next_obs_t) - Phi(obs_t).

    Phi(cell) = - moves from the cell to the goal / most moves between two cells of the room; so 0 on the goal, where an
    episode terminates, and -1 at worst. What is added sums up to Phi(last next_obs) - Phi(first obs) over an episode.

    Raises `ConfigError` in worlds other than rooms in which the first number of a task is the goal's cell."""
    if history.world != "dark_room":
        raise ConfigError(
            f"critic.reward_plugin=distance: env.name={history.world} has no goal's cell to measure from; must be "
            "env.name=dark_room"
        )
    width, goal = history.spec.width, history.task[0]

    def potential(cell: Integers) -> NDArray[np.float64]:
        rows, columns = np.abs(cell // width - goal // width), np.abs(cell % width - goal % width)
        return -(rows + columns) / (2 * (width - 1))

    return (history.reward + potential(history.next_obs) - potential(history.obs)).astype(np.float32)


def improvement(history: History) -> Floats:
    """max(0, G_e - max(0, G_0, ..., G_{e-1})) at the last step of episode e, G its return; 0 at all other steps.

    Over a life it sums up to the best return, if that is positive. An episode that the history does not see the end of
    gets nothing."""
    last = np.flatnonzero(history.terminated | history.truncated)
    returns = np.bincount(history.episode, weights=history.reward)[: len(last)]
    best = np.maximum.accumulate(np.append(0, returns))[:-1]
    training_reward = np.zeros_like(history.reward)
    training_reward[last] = np.maximum(returns - best, 0)
    return training_reward


BUILT_IN: dict[str, GetReward] = {
    function.__name__: function for function in (identity, step_penalty, distance, improvement)
}


class RewardPlugin(NamedTuple):
    """A function and where it comes from."""

    name: str  # as `critic.reward_plugin` gives it
    text: str  # of the file; "" for what is built in
    sha256: str  # of the text
    get_reward: GetReward


def load_plugin(name: str) -> RewardPlugin:
    """The built-in function of that name, or `get_reward` of the Python file at that path.

    Raises `ConfigError` that names the option where there is no such file, or it fails or defines no such function."""
    wrong = f"critic.reward_plugin={name}:"
    if name in BUILT_IN:
        return RewardPlugin(name, "", hashlib.sha256().hexdigest(), BUILT_IN[name])
    path, expected = Path(name), f"must be one of {', '.join(BUILT_IN)}, or a Python file (.py)"
    try:
        if not path.is_file():
            raise ConfigError(f"{wrong} {'is not a file' if path.exists() else 'does not exist'}; {expected}")
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{wrong} cannot be read: {error.strerror}") from error
    spec = importlib.util.spec_from_file_location(f"reward_plugin_{hashlib.sha256(content).hexdigest()}", path)
    if spec is None or path.suffix != ".py":
        raise ConfigError(f"{wrong} is no Python file; {expected}")
    try:
        text, module = importlib.util.decode_source(content), importlib.util.module_from_spec(spec)
        # The loader would run a compiled file, if there is one of this age and size, whatever the text is now.
        exec(compile(content, str(path), "exec"), vars(module))
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{wrong} raises {_told(error)}") from error
    if "get_reward" not in vars(module):
        raise ConfigError(f"{wrong} defines no get_reward")
    if not callable(module.get_reward):
        raise ConfigError(f"{wrong} get_reward is not callable but {type(module.get_reward).__name__}")
    return RewardPlugin(name, text, hashlib.sha256(text.encode()).hexdigest(), module.get_reward)


def training_rewards(
    plugin: RewardPlugin, histories: Histories, rows: Sequence[int] | Integers, num_steps: int
) -> Floats:
    """What `plugin` makes of the first `num_steps` of each of `rows`, `[rows, num_steps]`; fewer, if lives are shorter.

    Raises `ConfigError` where it raises, or returns anything but one finite float32 for each step."""
    num_steps = min(num_steps, histories.columns["reward"].shape[1])
    training_reward = np.empty((len(rows), num_steps), np.float32)
    for place, (row, life) in enumerate(zip(rows, _lives(histories, rows, num_steps), strict=True)):
        where = f"in row {row} of {histories.folder}"
        try:
            found = plugin.get_reward(life)
        except PipelineError:
            raise
        except Exception as error:
            raise ConfigError(
                f"critic.reward_plugin={plugin.name}: get_reward raises {_told(error)}, {where}"
            ) from error
        if fault := _fault(found, num_steps):
            raise ConfigError(f"critic.reward_plugin={plugin.name}: get_reward returns {fault}, {where}")
        training_reward[place] = found
    return training_reward


def described(plugin: RewardPlugin) -> Json:
    """Which plug-in this is, as checkpoints keep it."""
    return {"name": plugin.name, "sha256": plugin.sha256, "text": plugin.text}


def check_plugin(plugin: RewardPlugin, before: Json, where: Path) -> None:
    """Raise `ConfigError` unless the run in `where`, which noted as `described` what it learned `before` from, learned
    from the same text, wherever that lies now, or from the same built-in function."""
    if not fits(before, {"name": str, "sha256": str, "text": str}):
        raise PipelineError(f"the newest checkpoint in {where} does not say which critic.reward_plugin it learned from")
    now = described(plugin)
    if (now["text"] or now["name"]) != (before["text"] or before["name"]):
        raise ConfigError(
            f"{where} was made with {_called(before)}, and this configuration gives {_called(now)}: "
            "give that here too, or another name="
        )


def _called(one: Json) -> str:
    whose = f"sha256 {one['sha256'][:12]}" if one["text"] else "built in"
    return f"critic.reward_plugin={one['name']} ({whose})"


def _lives(histories: Histories, rows: Sequence[int] | Integers, num_steps: int) -> Iterator[History]:
    tasks, spec, row_tasks = histories.manifest["tasks"]["all"], histories.spec, histories.row_tasks
    values, world = np.array(spec.reward_values, np.float32), histories.manifest["config"]["env"]["name"]
    for row in rows:
        columns = {name: column[row, :num_steps].astype(np.int64) for name, column in histories.columns.items()}
        del columns["optimal_action"]
        terminated, truncated = columns["terminated"] > 0, columns["truncated"] > 0
        done = terminated | truncated
        arrays: dict[str, NDArray[Any]] = columns | {
            "reward": values[columns["reward"]],
            "terminated": terminated,
            "truncated": truncated,
            "episode": np.cumsum(done) - done,
            "task": np.array(tasks[row_tasks[row]], np.int64),
        }
        for array in arrays.values():
            array.flags.writeable = False
        yield History(**arrays, spec=spec, world=world)


def _fault(found: Any, num_steps: int) -> str:
    """What is wrong with what `get_reward` returned; "" where nothing is."""
    if not isinstance(found, np.ndarray):
        return f"{type(found).__name__}, not a NumPy array"
    if found.shape != (num_steps,):
        return f"an array of shape {found.shape}, not {(num_steps,)}: one number for each step"
    if found.dtype != np.float32:
        return f"{found.dtype}, not float32"
    finite = np.isfinite(found)
    if not finite.all():
        first = int(finite.argmin())
        return f"{found[first]} at step {first}"
    return ""


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
