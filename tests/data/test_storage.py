"""Large stores stay on disk, with the batches of those in memory, and files are checked once."""

import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from harness import flip
from lives import ALIKE, CONFIG, CPU
from stage_one import play

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.data import checksums, columns, mapped
from icrl.data.history_store import DamagedHistoriesError, Histories, HistoryWriter, open_histories
from icrl.data.moments import moments_of
from icrl.data.rewards import RewardPlugin
from icrl.data.windows import Mixture, Windows
from icrl.envs import make_env
from icrl.evaluation.references import chance
from icrl.runs.device import recorded
from icrl.sources.searchers.searcher import relabelled, searcher_of

TRAIN, ROWS = [3, 9, 17, 20], {"num_learners": 3, "num_envs": 2}
NUM_ROWS, NUM_STEPS = 24, 130


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Histories:
    """Random walks in a room, every third learner with luck."""
    config: Any = load_config(["env.size=5", "source=random"])
    env = make_env(config.env)
    goals = env.all_tasks()[TRAIN].repeat_interleave(NUM_ROWS // len(TRAIN), 0)
    played, _ = play(chance(env, config), env, goals, NUM_STEPS)
    tasks = {"all": env.all_tasks().tolist(), "seed": 0, "train": TRAIN, "held_out": [1]}
    folder = tmp_path_factory.mktemp("histories") / "whole"
    writer = HistoryWriter(folder, env.spec, NUM_STEPS, tasks, ROWS, recorded(config))
    writer.add(played)
    writer.commit(0)
    writer.finish()
    return open_histories(folder)


LABELS = replace(ALIKE, name="dpt", labels="persistent_walk")
PLUGIN = RewardPlugin("code", "", "", lambda life: np.float32(100 * life.obs + life.timestep))
KINDS: list[tuple[dict, Any, RewardPlugin | None]] = [
    ({"keep_every": [1]}, ALIKE, None),
    ({"keep_every": [1, 3], "kept_steps": 40}, replace(ALIKE, weighting="recency"), None),
    ({"keep_every": [2, 4], "history_len": 220}, replace(ALIKE, weighting="improvement"), None),
    ({"symmetries": True, "min_final_success": 0.1}, replace(ALIKE, weighting="improvement"), PLUGIN),
    ({"kept_steps": 50}, LABELS, None),
]


@pytest.mark.parametrize(("options", "objective", "plugin"), KINDS)
@pytest.mark.parametrize("chunk", [2**27, 40_000])
def test_batches_from_disk_are_those_from_memory(
    store: Histories, options, objective, plugin, chunk, monkeypatch
) -> None:
    """Whether rows are prepared at once or few at a time; on disk nothing is left behind."""
    monkeypatch.setattr(columns, "_CHUNK", chunk)
    labels = None
    if objective.name == "dpt":
        config: Any = load_config(["env.size=5", "source=random"])

        def labels(seen, first_row=0):
            return relabelled(searcher_of(objective.labels, config), seen, 5, first_row)

    def mixture(histories: Histories, storage: str) -> Mixture:
        config = replace(CONFIG, storage=storage, **options)
        return Mixture([Windows(histories, config, objective, TRAIN[:3], 12, CPU, plugin, labels)], [])

    memory, other = mixture(store, "memory"), mixture(store, "disk")
    assert other.num_windows == memory.num_windows and other.largest_reward == memory.largest_reward
    for update in range(3):
        for name, one, two in zip(
            memory.batch(0, 0, 1)._fields, memory.batch(1, update, 16), other.batch(1, update, 16), strict=True
        ):
            assert one.dtype == two.dtype and torch.allclose(one, two, rtol=2e-3), name
    for one, two in zip(moments_of(memory), moments_of(other), strict=True):
        assert torch.allclose(one, two)
    assert other.is_mapped and not memory.is_mapped and not [*store.folder.glob(".scratch*")]


class Unread:
    """Column that may not be read."""

    def __init__(self, column: np.ndarray) -> None:
        self.shape, self.dtype, self.ndim, self.nbytes = column.shape, column.dtype, column.ndim, column.nbytes

    def __len__(self) -> int:
        return self.shape[0]


def test_plain_windows_on_disk_start_without_reading_a_row(store: Histories) -> None:
    """So the start of training does not depend on the size of the histories; with weights it does."""
    plain = replace(CONFIG, storage="disk", keep_every=[1], kept_steps=0, min_final_success=0.0)
    whole = Windows(store, plain, ALIKE, TRAIN[:3], 12, CPU)
    unread = Histories(store.folder, store.manifest, {name: Unread(part) for name, part in store.columns.items()})
    windows = Windows(unread, plain, ALIKE, TRAIN[:3], 12, CPU)
    assert (windows.num_windows, windows.num_rows) == (whole.num_windows, whole.num_rows) == (18 * 119, 18)
    with pytest.raises(TypeError, match="Unread"):
        Windows(unread, plain, replace(ALIKE, weighting="recency"), TRAIN[:3], 12, CPU)


def test_stores_larger_than_a_share_of_the_memory_stay_on_disk(store: Histories, monkeypatch) -> None:
    size = sum(column.nbytes for column in store.columns.values())
    for free, on_disk in ((4 * size, False), (4 * size - 1, True), (None, False)):
        monkeypatch.setattr(mapped, "free_memory", lambda _, free=free: free)
        assert Windows(store, CONFIG, ALIKE, TRAIN, 9, CPU).is_mapped == on_disk


def test_large_files_are_read_once_unless_they_change(store: Histories, tmp_path: Path, monkeypatch) -> None:
    """Small files, and those that were just written, are not noted; a note hides no write, and damage is not noted."""
    folder = Path(shutil.copytree(store.folder, tmp_path / "copy"))
    note, path = folder / "checked.json", folder / "action.npy"
    sums = Mock(side_effect=checksums.sha256)
    monkeypatch.setattr(checksums, "sha256", sums)

    def num_read() -> int:
        sums.reset_mock()
        open_histories(folder)
        return sums.call_count

    monkeypatch.setattr(checksums, "NOTED_FROM", 1)
    assert num_read() == num_read() == 8 and not note.exists()
    monkeypatch.setattr(checksums, "_SETTLED", -1)
    monkeypatch.setattr(checksums, "NOTED_FROM", 1 << 26)
    assert num_read() == num_read() == 8 and not note.exists()
    monkeypatch.setattr(checksums, "NOTED_FROM", 1)
    assert [num_read(), num_read()] == [8, 0] and note.exists()
    path.write_bytes(path.read_bytes())
    assert [num_read(), num_read()] == [1, 0]
    flip(path, -1)
    for _ in range(2):
        with pytest.raises(DamagedHistoriesError, match="is damaged"):
            open_histories(folder)
    flip(path, -1)
    assert [num_read(), num_read()] == [1, 0]
    note.unlink()
    assert num_read() == 8
    note.write_text("{}")
    assert num_read() == 8
