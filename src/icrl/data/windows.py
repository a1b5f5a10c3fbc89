"""Windows of histories with a weight for each step; a window never leaves its row.

N rows, B windows, T steps in a window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from icrl.config.options import OneOrMore, Options, option, refuse
from icrl.contracts import Batch, ConfigError, EnvSpec
from icrl.data.history_store import Histories
from icrl.data.rewards import Floats, RewardPlugin, training_rewards

if TYPE_CHECKING:
    from icrl.objectives.ad import ObjectiveConfig


class DataConfig(Options):
    weights: list[Annotated[float, Field(gt=0)]] = option(
        [], "relative sampling weight of each history store ([]: proportional to its number of windows)"
    )
    history_len: int = option(0, "number of env steps per learner to use, from the start (0: all recorded)", ge=0)
    keep_every: Annotated[list[Annotated[int, Field(ge=1, le=1000)]], OneOrMore] = option(
        [1, 4, 16], "keep every k-th episode of a history, so that progress shows inside a window; for each k of a list"
    )
    kept_steps: int = option(
        320,
        "number of steps to use of the episodes kept for each k, so that each k has equally many windows (0: all)",
        ge=0,
    )
    min_final_success: float = option(
        0.5, "leave out learners whose success over the last tenth of their history is lower", ge=0, le=1
    )
    num_development_tasks: int = option(
        4, "training tasks that the model does not learn from; recipes and checkpoints are chosen on them", ge=0
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(not self.keep_every, "data.keep_every=[] must have at least one number")
        refuse(
            len(set(self.keep_every)) < len(self.keep_every),
            f"data.keep_every={self.keep_every}: must have no number twice",
        )
        return self


_RECORDED = tuple(name for name in Batch._fields if name not in ("weight", "training_reward"))


class Windows:
    """All windows of `context_len` steps of the selected rows, in memory in small dtypes.

    For each k of `data.keep_every`, each row becomes k rows: one with episodes 0, k, 2k, ..., one with 1, k + 1, ...
    So a window spans k times as much of a life, and no episode is wasted."""

    def __init__(
        self,
        histories: Histories,
        config: DataConfig,
        objective: ObjectiveConfig,
        tasks: list[int],
        context_len: int,
        device: torch.device,
        plugin: RewardPlugin | None = None,
    ) -> None:
        """Windows of the rows of `tasks` (indices into all tasks). The training reward is the recorded one, or the
        output of `plugin`. Raises `ConfigError` if no window is left, or if `objective` needs optimal actions and
        they are unknown."""
        self.device = device
        rows = _selected_rows(histories, config, tasks)
        num_envs, num_steps = histories.manifest["rows"]["num_envs"], histories.columns["obs"].shape[1]
        if 0 < config.history_len < num_envs:
            raise ConfigError(
                f"data.history_len={config.history_len}: must be at least the {num_envs} environments of a learner in "
                f"{histories.folder}, one env step each, or 0 for all"
            )
        steps = config.history_len // num_envs or num_steps
        columns = {name: histories.columns[name][rows, :steps] for name in _RECORDED}
        if objective.name == "dpt" and (columns["optimal_action"] == histories.spec.num_actions).any():
            raise ConfigError(f"objective.name=dpt: optimal actions are unknown in {histories.folder}")
        done = (columns["terminated"] | columns["truncated"]) > 0
        columns["training_reward"] = np.array(histories.spec.reward_values, np.float32)[columns["reward"]]
        if plugin:
            columns["training_reward"] = training_rewards(plugin, histories, rows, steps)
        columns["weight"] = step_weights(objective, histories.spec, columns["reward"], done).astype(np.float16)
        kept = _kept_steps(config, np.cumsum(done, axis=1, dtype=np.int32) - done)
        lengths = np.concatenate([mask.sum(axis=1) for mask in kept])  # [N * k]
        self._columns = {
            name: torch.from_numpy(np.concatenate([column[mask] for mask in kept])).to(device)
            for name, column in columns.items()
        }
        self.largest_reward = float(self._columns["training_reward"].abs().max()) if lengths.any() else 0.0
        usable = lengths >= context_len
        if not usable.any():
            raise ConfigError(
                f"model.context_len={context_len} is longer than every history that data.keep_every="
                f"{config.keep_every} and data.kept_steps={config.kept_steps} leave of {histories.folder}: the longest "
                f"has {lengths.max(initial=0)} steps"
            )
        starts, num_windows = (lengths.cumsum() - lengths)[usable], lengths[usable] - context_len + 1
        self.num_windows, self.num_rows = int(num_windows.sum()), int(usable.sum())
        self._row_end = torch.from_numpy(num_windows.cumsum()).to(device)  # windows before the end of each row
        self._row_shift = torch.from_numpy(starts - (num_windows.cumsum() - num_windows)).to(device)
        self._offsets = torch.arange(context_len, device=device)

    def at(self, window: Tensor) -> Batch:
        """The windows with these numbers `[B]`, from 0 to num_windows - 1."""
        row = torch.searchsorted(self._row_end, window, right=True)
        index = (window + self._row_shift[row])[:, None] + self._offsets  # [B, T]
        recorded = (self._columns[name][index].long() for name in _RECORDED)
        weight, training_reward = (self._columns[name][index].float() for name in ("weight", "training_reward"))
        return Batch(*recorded, weight=weight, training_reward=training_reward)


def _kept_steps(config: DataConfig, episode: NDArray[np.int32]) -> list[NDArray[np.bool_]]:
    """One mask `[N, steps]` for each pace k and offset, given the episode number of each step `[N, steps]`."""
    kept = [episode % k == phase for k in config.keep_every for phase in range(k)]
    if not config.kept_steps:
        return kept
    return [mask & (np.cumsum(mask, axis=1, dtype=np.int32) <= config.kept_steps) for mask in kept]


def _selected_rows(histories: Histories, config: DataConfig, tasks: list[int]) -> np.ndarray:
    """Indices of the rows of `tasks` whose learner reached `data.min_final_success`."""
    success = np.repeat(histories.final_success(), histories.manifest["rows"]["num_envs"])  # [rows]
    of_tasks = np.isin(histories.row_tasks, tasks)
    rows = np.flatnonzero(of_tasks & (success >= config.min_final_success))
    if not len(rows):
        raise ConfigError(
            f"data.min_final_success={config.min_final_success} leaves no learner of {histories.folder}: the best one "
            f"reached {success[of_tasks].max():.3f}"
        )
    return rows


def step_weights(
    config: ObjectiveConfig, spec: EnvSpec, reward: NDArray[np.integer], done: NDArray[np.bool_]
) -> Floats:
    """Weight of each step in the loss, given rewards (indices into the reward values) and episode ends, `[N, T]` each.

    The mean weight over whole lives is 1, apart from clipping. `none`: 1. `recency`: 2 (t + 1) / (T + 1).
    `improvement`: the return-to-go over the mean return-to-go of all rows at that age,

        w_t = min((G_t - least) / (mean of G at that age - least), max_weight),    G_t = sum_k discount^k r_{t+k}

    with k up to the end of the episode. An age is a stretch of about `max_episode_steps` steps; `least` is its least
    G or 0, if that is less; all weights are 1 if all G are at the least. So the model imitates the steps after which
    an agent did better than others at its age. Early in training, these are the lucky successes."""
    num_rows, num_steps = reward.shape
    if config.weighting == "none":
        return np.ones((num_rows, num_steps), np.float32)
    if config.weighting == "recency":
        age = np.arange(1, num_steps + 1, dtype=np.float32)
        return np.tile(2 * age / (num_steps + 1), (num_rows, 1))
    values = np.array(spec.reward_values, np.float32)[reward]
    gains, later = np.empty(reward.shape, np.float32), np.zeros(num_rows, np.float32)
    for t in reversed(range(num_steps)):
        later = values[:, t] + config.discount * later * ~done[:, t]
        gains[:, t] = later
    for alike in np.array_split(gains, max(1, num_steps // spec.max_episode_steps), axis=1):  # views
        least = min(alike.min(), 0)
        mean = alike.mean() - least
        alike[:] = np.minimum((alike - least) / mean, config.max_weight) if mean > 0 else 1
    return gains
