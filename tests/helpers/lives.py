"""Histories that hold codes: each `obs` is the number of its row, each `timestep` its index in the row."""

from pathlib import Path

import numpy as np
import torch

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.contracts import Batch, Json, Rollout
from icrl.data.history_store import Histories

CONFIG = replace(
    load_config().data, history_len=0, keep_every=[1], kept_steps=0, min_final_success=0.0, num_development_tasks=0
)
ALIKE = replace(load_config().objective, weighting="none")
CPU = torch.device("cpu")
TRAIN, NUM_LEARNERS, NUM_ENVS = [4, 0, 7], 2, 2
PER_TASK = NUM_LEARNERS * NUM_ENVS
NUM_ROWS = len(TRAIN) * PER_TASK

Code = tuple[tuple[int, ...], tuple[int, ...]]  # a window: its rows and its steps


def histories_of(
    done: np.ndarray, reward: np.ndarray | None = None, dtype: type = np.uint8, first_row: int = 0
) -> Histories:
    """Histories whose episodes end where `done` `[rows, steps]` is true. Rows are numbered from `first_row` on."""
    row, step = np.indices(done.shape)
    nothing = np.zeros(done.shape, np.uint8)
    columns = dict.fromkeys(Rollout._fields, nothing) | {
        "obs": (row + first_row).astype(dtype),
        "timestep": step.astype(dtype),
        "action": (step % 5).astype(np.uint8),
        "reward": nothing if reward is None else reward.astype(np.uint8),
        "terminated": (done & (row % 2 == 0)).astype(np.uint8),
        "truncated": (done & (row % 2 == 1)).astype(np.uint8),
    }
    env: Json = {"num_obs": 256, "num_actions": 5, "reward_values": [0.0, 1.0], "width": 16, "max_episode_steps": 99}
    rows = {"num_learners": NUM_LEARNERS, "num_envs": NUM_ENVS}
    return Histories(Path("codes"), {"env": env, "tasks": {"train": TRAIN}, "rows": rows}, columns)


def random_done(num_steps: int, seed: int = 0, density: float = 0.2) -> np.ndarray:
    return np.random.default_rng(seed).random((NUM_ROWS, num_steps)) < density


def codes_of(batch: Batch) -> list[Code]:
    return [(tuple(obs), tuple(time)) for obs, time in zip(batch.obs.tolist(), batch.timestep.tolist(), strict=True)]
