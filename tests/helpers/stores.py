"""A store of random walks in a room, and the forms in which its windows are drawn, for tests of storage."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from lives import ALIKE, CONFIG, CPU
from stage_one import play

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.contracts import Batch
from icrl.data.history_store import Histories, HistoryWriter, open_histories
from icrl.data.lives import Rewards
from icrl.data.windows import Mixture, Windows, moments_of
from icrl.envs import make_env
from icrl.envs.policies import Chance

TRAIN, ROWS = [3, 9, 17, 20], {"num_learners": 3, "num_envs": 2}
NUM_ROWS, NUM_STEPS = 24, 130
LABELS = replace(ALIKE, name="dpt")


def rewards_of_a_row(histories: Histories, rows: np.ndarray, steps: int) -> np.ndarray:
    """Rewards to train on that are not the recorded ones."""
    obs, timestep = (histories.columns[name][rows, :steps] for name in ("obs", "timestep"))
    return np.float32(100) * obs + timestep


KINDS: list[tuple[dict, Any, Rewards | None]] = [
    ({"keep_every": [1]}, ALIKE, None),
    ({"keep_every": [1, 3], "kept_steps": 40}, replace(ALIKE, weighting="recency"), None),
    ({"keep_every": [2, 4], "history_len": 220}, replace(ALIKE, weighting="improvement"), None),
    ({"min_final_success": 0.1}, replace(ALIKE, weighting="improvement"), rewards_of_a_row),
    ({"kept_steps": 50}, LABELS, None),
]


def written(folder: Path) -> Histories:
    """Random walks in a room, every third learner with luck, written to `folder`."""
    config: Any = load_config(["env.size=5"])
    env = make_env(config.env)
    goals = env.all_tasks()[TRAIN].repeat_interleave(NUM_ROWS // len(TRAIN), 0)
    played, _ = play(Chance(env.spec), env, goals, NUM_STEPS)
    tasks = {"all": env.all_tasks().tolist(), "seed": 0, "train": TRAIN, "held_out": [1]}
    writer = HistoryWriter(folder, env.spec, NUM_STEPS, tasks, ROWS, config.model_dump())
    writer.add(played)
    writer.commit()
    writer.finish()
    return open_histories(folder)


def labels_of_a_row(seen: Any, first_row: int = 0) -> np.ndarray:
    """Labels that depend on what a row has shown so far, and on its number."""
    rows = np.arange(first_row, first_row + len(seen["obs"]))[:, None]
    return ((seen["obs"].cumsum(1) + seen["action"] + rows) % 5).astype(np.uint8)


def mixture_of(histories: Histories, options: dict, objective: Any, rewards: Rewards | None) -> Mixture:
    """Windows of `histories`, one of `KINDS`."""
    labels = labels_of_a_row if objective is LABELS else None
    config = replace(CONFIG, **options)
    return Mixture([Windows(histories, config, objective, TRAIN[:3], 12, CPU, rewards, labels)], [])


def assert_same_batches(one: Mixture, other: Mixture) -> None:
    """The same windows, batches and moments, up to rounding."""
    assert other.num_windows == one.num_windows
    for update in range(3):
        batches = one.batch(1, update, 16), other.batch(1, update, 16)
        for name, column, same in zip(Batch._fields, *batches, strict=True):
            assert column.dtype == same.dtype and torch.allclose(column, same, rtol=2e-3), name
    for moments in zip(moments_of(one), moments_of(other), strict=True):
        assert torch.allclose(*moments)
