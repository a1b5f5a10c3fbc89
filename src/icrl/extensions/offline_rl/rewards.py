"""Reward plug-ins: functions from a recorded history to the training reward of a critic.

A plug-in is `identity`, the recorded reward, or a Python file that defines `get_reward(history) -> float32 [T]`. It
reads whole lives, so it may reward progress over episodes.
"""

import hashlib
from collections.abc import Callable, Sequence
from importlib.util import decode_source
from operator import attrgetter
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


class RewardPlugin(NamedTuple):
    """A reward function and its origin."""

    name: str  # value of `critic.reward_plugin`
    text: str  # of the file; "" for identity
    sha256: str  # of the text
    get_reward: GetReward


def load_plugin(name: str) -> RewardPlugin:
    """The recorded reward for `identity`, else `get_reward` of the Python file at that path. Raises `ConfigError` if
    the file cannot be read, fails, or defines no such function."""
    wrong = f"critic.reward_plugin={name}:"
    if name == "identity":
        return RewardPlugin(name, "", hashlib.sha256().hexdigest(), attrgetter("reward"))
    expected = "must be identity, or a Python file (.py)"
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
    refuse(changed, f"critic.reward_plugin={plugin.name} reads one task per row, but {histories.folder} has several")
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
