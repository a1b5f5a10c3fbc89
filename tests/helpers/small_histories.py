"""Small histories for tests of their readers: every transition contains its step and its row."""

from pathlib import Path

import torch
from torch import Tensor

from icrl.app.root import Config
from icrl.contracts import Rollout
from icrl.data.history_store import HistoryWriter
from icrl.envs import make_env

MARK = 200  # the timestep of all transitions, which no real one has


def transitions_of(ends: Tensor) -> Rollout:
    """Transitions `[T, rows]` with the step as `obs` and the row as `next_obs`; episodes end where `ends` is true."""
    step = torch.arange(len(ends))[:, None].expand(ends.shape)
    row = torch.arange(ends.shape[1]).expand(ends.shape)
    mark = torch.full(ends.shape, MARK)
    return Rollout(step, row % 5, step % 2, row, mark, ends & (row % 2 == 0), ends & (row % 2 == 1), step % 5)


def write_histories(root: Path, name: str, config: Config, train: list[int], per_task: int, ends: Tensor) -> Path:
    """Histories of `per_task` learners with 1 environment on each of the tasks `train`; `ends` is `[T, rows]`."""
    env = make_env(config.env)
    folder = root / "histories" / name
    tasks = {"all": env.all_tasks().tolist(), "seed": 0, "train": train, "held_out": []}
    rows = {"num_learners": per_task, "num_envs": 1}
    writer = HistoryWriter(folder, env.spec, len(ends), tasks, rows, config.model_dump())
    writer.add(transitions_of(ends))
    writer.commit()
    writer.finish()
    return folder
