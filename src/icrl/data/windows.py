"""Windows of histories: a window never leaves its row.

N rows, B windows, T steps in a window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from icrl.contracts import Batch, ConfigError
from icrl.data.history_store import Histories
from icrl.data.rewards import RewardPlugin, training_rewards
from icrl.data.weights import step_weights

if TYPE_CHECKING:
    from icrl.config.root import DataConfig, ObjectiveConfig

_RECORDED = tuple(name for name in Batch._fields if name not in ("weight", "training_reward"))


class Windows:
    """All windows of `context_len` steps of the rows that are left after selection, in memory in small dtypes.

    For each k of `data.keep_every`, each row becomes k rows: one with episodes 0, k, 2k, ..., one with 1, k + 1, ...,
    so that a window spans k times as much of a life and no episode is wasted. Several k show the same lives at several
    paces.
    """

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
        """Rows of `tasks` (indices into all tasks) alone; the reward to learn from is the one that was seen, or what
        `plugin` makes of it. Raises `ConfigError` where no window is left, or `objective`
        asks for optimal actions that nobody knows."""
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
            raise ConfigError(f"objective.name=dpt: nobody knows what is optimal in {histories.folder}")
        done = (histories.columns["terminated"][rows, :steps] | histories.columns["truncated"][rows, :steps]) > 0
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
        self.largest_payoff = float(self._columns["training_reward"].abs().max()) if lengths.any() else 0.0
        starts = np.concatenate([[0], lengths.cumsum()[:-1]])
        usable = lengths >= context_len
        if not usable.any():
            raise ConfigError(
                f"model.context_len={context_len} is longer than every history that data.keep_every="
                f"{config.keep_every} and data.kept_steps={config.kept_steps} leave of {histories.folder}: the longest "
                f"has {lengths.max(initial=0)} steps"
            )
        num_windows = lengths[usable] - context_len + 1
        self.num_windows = int(num_windows.sum())
        self.num_rows = int(usable.sum())
        self._row_end = torch.from_numpy(num_windows.cumsum()).to(device)  # windows before the end of each row
        self._row_shift = torch.from_numpy(starts[usable] - (num_windows.cumsum() - num_windows)).to(device)
        self._offsets = torch.arange(context_len, device=device)

    def at(self, window: Tensor) -> Batch:
        """The windows with the numbers `[B]` in 0 .. num_windows - 1."""
        row = torch.searchsorted(self._row_end, window, right=True)
        index = (window + self._row_shift[row])[:, None] + self._offsets  # [B, T]
        recorded = (self._columns[name][index].long() for name in _RECORDED)
        weight, training_reward = (self._columns[name][index].float() for name in ("weight", "training_reward"))
        return Batch(*recorded, weight=weight, training_reward=training_reward)


def _kept_steps(config: DataConfig, episode: np.ndarray) -> list[np.ndarray]:
    """Which steps of rows with the numbers `episode` `[N, steps]` each pace and phase keeps, `[N, steps]` bool each."""
    kept = [episode % k == phase for k in config.keep_every for phase in range(k)]
    if not config.kept_steps:
        return kept
    return [mask & (np.cumsum(mask, axis=1, dtype=np.int32) <= config.kept_steps) for mask in kept]


def _selected_rows(histories: Histories, config: DataConfig, tasks: list[int]) -> np.ndarray:
    """Indices of the rows of `tasks` whose learner was good enough in the end."""
    success = np.repeat(histories.final_success(), histories.manifest["rows"]["num_envs"])  # [rows]
    of_tasks = np.isin(histories.row_tasks, tasks)
    rows = np.flatnonzero(of_tasks & (success >= config.min_final_success))
    if not len(rows):
        raise ConfigError(
            f"data.min_final_success={config.min_final_success} leaves nothing of {histories.folder}: the best learner "
            f"reached {success[of_tasks].max():.3f}"
        )
    return rows
