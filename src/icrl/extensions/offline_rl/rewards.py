"""Reward plug-ins: functions from a recorded history to the training reward of a critic.

A plug-in is a function of `BUILT_IN`, or a Python file that defines `get_reward(history) -> float32 [T]`. It reads
whole lives, so it may reward progress over episodes.
"""

import hashlib
from collections.abc import Callable, Sequence
from importlib.util import decode_source
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from icrl.config.options import refuse
from icrl.contracts import ConfigError, Json, PipelineError
from icrl.data.columns import Booleans, Floats, Integers, rollout_of
from icrl.data.history_store import Histories
from icrl.data.windows import Mixture
from icrl.runs.files import has_form
from icrl.spaces import EnvSpec

Rows = Sequence[int] | Integers


class History(NamedTuple):
    """Life of one stream on one task, episode after episode: read-only columns `[T]`, and its world."""

    obs: Integers
    action: Integers
    reward: Floats
    next_obs: Integers  # the observation after the action, before any reset
    timestep: Integers  # env steps since the last reset
    terminated: Booleans
    truncated: Booleans
    episode: Integers  # episode number of each step, from 0 on
    task: Integers  # [task_dim], a row of the table of all tasks
    spec: EnvSpec
    world: str  # env.name


GetReward = Callable[[History], Floats]


def distance(history: History) -> Floats:
    """Potential-based shaping (Ng et al., 1999), undiscounted: r_t + Phi(next_obs_t) - Phi(obs_t).

    Phi(cell) = - moves from the cell to the goal / most moves between two cells of the room. So Phi is 0 on the goal,
    where an episode terminates, and -1 at worst; the shaping terms of an episode sum to Phi(last) - Phi(first). Raises
    `ConfigError` unless the world is a room whose task starts with the goal cell."""
    wrong = f"critic.reward_plugin=distance: env.name={history.world} has no goal cell; must be env.name=dark_room"
    refuse(history.world != "dark_room", wrong)
    width, goal = history.spec.width, history.task[0]

    def potential(cell: Integers) -> NDArray[np.float64]:
        rows, columns = np.abs(cell // width - goal // width), np.abs(cell % width - goal % width)
        return -(rows + columns) / (2 * (width - 1))

    return (history.reward + potential(history.next_obs) - potential(history.obs)).astype(np.float32)


def improvement(history: History) -> Floats:
    """max(0, G_e - max(0, G_0, ..., G_{e-1})) at the last step of episode e with return G_e; 0 at all other steps. Over
    a life it sums to the best return, if that is positive. An unfinished last episode gets nothing."""
    last = np.flatnonzero(history.terminated | history.truncated)
    returns = np.bincount(history.episode, weights=history.reward)[: len(last)]
    best = np.maximum.accumulate(np.append(0, returns))[:-1]
    training_reward = np.zeros_like(history.reward)
    training_reward[last] = np.maximum(returns - best, 0)
    return training_reward


BUILT_IN: dict[str, GetReward] = {
    "identity": lambda life: life.reward,
    "step_penalty": lambda life: life.reward - np.float32(1 / life.spec.max_episode_steps),  # at most -1 an episode
    "distance": distance,
    "improvement": improvement,
}


class RewardPlugin(NamedTuple):
    """A reward function and its origin."""

    name: str  # value of `critic.reward_plugin`
    text: str  # of the file; "" for a built-in function
    sha256: str  # of the text
    get_reward: GetReward


def load_plugin(name: str) -> RewardPlugin:
    """The built-in function of that name, or `get_reward` of the Python file at that path. Raises `ConfigError` if the
    file cannot be read, fails, or defines no such function."""
    wrong = f"critic.reward_plugin={name}:"
    if name in BUILT_IN:
        return RewardPlugin(name, "", hashlib.sha256().hexdigest(), BUILT_IN[name])
    expected = f"must be one of {', '.join(BUILT_IN)}, or a Python file (.py)"
    refuse(not name.endswith(".py"), f"{wrong} is not a Python file; {expected}")
    try:
        content = Path(name).read_bytes()
    except OSError as error:
        raise ConfigError(f"{wrong} cannot be read: {error.strerror}; {expected}") from error
    found: dict[str, Any] = {"__name__": "reward_plugin", "__file__": name}
    try:
        text = decode_source(content)
        exec(compile(content, name, "exec"), found)  # an import could run a stale compiled file
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{wrong} raises {type(error).__name__}: {error}") from error
    if not callable(get_reward := found.get("get_reward")):
        raise ConfigError(f"{wrong} defines no get_reward function")
    return RewardPlugin(name, text, hashlib.sha256(text.encode()).hexdigest(), get_reward)


def training_rewards(plugin: RewardPlugin, histories: Histories, rows: Rows, num_steps: int) -> Floats:
    """Rewards of `plugin` for the first `num_steps` of each of `rows`, `[rows, num_steps]`, or fewer if lives are
    shorter. Raises `ConfigError` if the plug-in raises, or returns anything but one finite float32 per step, and for
    streams whose task changed, because a plug-in reads the first one."""
    changed = histories.manifest.get("config", {}).get("source", {}).get("task_change")
    refuse(changed, f"critic.reward_plugin={plugin.name} reads one task a row; {histories.folder} has several")
    training_reward = np.empty((len(rows), min(num_steps, histories.columns["reward"].shape[1])), np.float32)
    for index, row in enumerate(rows):
        life = _life(histories, row, num_steps)
        wrong, where = f"critic.reward_plugin={plugin.name}: get_reward", f"in row {row} of {histories.folder}"
        try:
            found: Any = plugin.get_reward(life)
        except PipelineError:
            raise
        except Exception as error:
            raise ConfigError(f"{wrong} raises {type(error).__name__}: {error}, {where}") from error
        kind = f"{found.dtype} array of shape {found.shape}" if isinstance(found, np.ndarray) else type(found).__name__
        needed = f"float32 array of shape {life.reward.shape}"
        refuse(kind != needed, f"{wrong} returns {kind}, not a NumPy {needed}: one number for each step, {where}")
        first = int(np.isfinite(found).argmin())
        refuse(not np.isfinite(found[first]), f"{wrong} returns {found[first]} at step {first}, {where}")
        training_reward[index] = found
    return training_reward


def _life(histories: Histories, row: int, num_steps: int) -> History:
    recorded = {name: column[row, :num_steps] for name, column in histories.columns.items()}
    columns = {name: column.numpy() for name, column in rollout_of(histories.spec, recorded)._asdict().items()}
    del columns["optimal_action"]
    terminated, truncated = columns["terminated"], columns["truncated"]
    done = terminated | truncated
    arrays: dict[str, NDArray[Any]] = columns | {
        "episode": np.cumsum(done) - done,
        "task": np.array(histories.tasks["all"][histories.row_tasks[row]]),
    }
    for array in arrays.values():
        array.flags.writeable = False
    return History(**arrays, spec=histories.spec, world=histories.manifest["config"]["env"]["name"])


def largest_reward(mixture: Mixture) -> float:
    """Largest absolute training reward of a step."""
    parts = [part.split("training_reward", 2**20) for part in mixture.parts]
    return max(float(steps.abs().max()) for part in parts for steps in part)


def described(plugin: RewardPlugin) -> Json:
    """Name, text and checksum of the plug-in, as checkpoints keep them."""
    return {"name": plugin.name, "sha256": plugin.sha256, "text": plugin.text}


def check_plugin(plugin: RewardPlugin, before: Json, where: Path) -> None:
    """Raise `ConfigError` unless the run in `where` used the same plug-in: `before`, as `described`, with the same text
    at any path, or the same built-in function."""
    if not has_form(before, {"name": str, "sha256": str, "text": str}):
        raise PipelineError(f"the newest checkpoint in {where} does not say which critic.reward_plugin it learned from")
    now = described(plugin)
    if (now["text"] or now["name"]) != (before["text"] or before["name"]):
        then, given = (
            f"critic.reward_plugin={one['name']} ({'sha256 ' + one['sha256'][:12] if one['text'] else 'built in'})"
            for one in (before, now)
        )
        raise ConfigError(
            f"{where} was made with {then}, but this configuration has {given}: give that here too, or another name="
        )
