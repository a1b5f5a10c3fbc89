"""Windows of histories: a window never leaves its row.

N rows, B windows, T steps in a window.
"""

import numpy as np
import torch
from torch import Tensor

from src.contracts import Batch, ConfigError
from src.data.history_store import Histories
from src.schema import DataConfig


class Windows:
    """All windows of `context_len` steps of the rows that are left after selection, in memory in small dtypes.

    With `data.keep_every` = k, each row becomes k rows: one with episodes 0, k, 2k, ..., one with 1, k + 1, ..., so
    that a window spans k times as much of a life and no episode is wasted.
    """

    def __init__(
        self, histories: Histories, config: DataConfig, tasks: list[int], context_len: int, device: torch.device
    ) -> None:
        """Rows of `tasks` (indices into all tasks) alone. Raises `ConfigError` where no window is left."""
        self.device = device
        rows = _selected_rows(histories, config, tasks)
        num_envs, num_steps = histories.manifest["rows"]["num_envs"], histories.columns["obs"].shape[1]
        if 0 < config.history_len < num_envs:
            raise ConfigError(
                f"data.history_len={config.history_len}: must be at least the {num_envs} environments of a learner in "
                f"{histories.folder}, one env step each, or 0 for all"
            )
        steps = config.history_len // num_envs or num_steps
        columns = {name: histories.columns[name][rows, :steps] for name in Batch._fields}
        done = (histories.columns["terminated"][rows, :steps] | histories.columns["truncated"][rows, :steps]) > 0
        episode = np.cumsum(done, axis=1) - done
        kept = [episode % config.keep_every == phase for phase in range(config.keep_every)]
        lengths = np.concatenate([mask.sum(axis=1) for mask in kept])  # [N * k]
        self._columns = {
            name: torch.from_numpy(np.concatenate([column[mask] for mask in kept])).to(device)
            for name, column in columns.items()
        }
        starts = np.concatenate([[0], lengths.cumsum()[:-1]])
        usable = lengths >= context_len
        if not usable.any():
            raise ConfigError(
                f"model.context_len={context_len} is longer than every history that data.keep_every="
                f"{config.keep_every} leaves of {histories.folder}: the longest has {lengths.max(initial=0)} steps"
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
        return Batch(*(self._columns[name][index].long() for name in Batch._fields))


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
