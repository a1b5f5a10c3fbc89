"""Unions of shards read as one store, in memory or on disk."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import flip
from shards import union_of
from stores import KINDS, NUM_STEPS, ROWS, assert_same_batches, mixture_of, written

from icrl.contracts import ConfigError, Rollout
from icrl.data import history_store
from icrl.data.history_store import DamagedHistoriesError, Histories, HistoryWriter, open_histories
from icrl.evaluation.in_context import source_adaptation
from icrl.runs.files import read_json, write_json


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Histories:
    return written(tmp_path_factory.mktemp("histories") / "whole")


@pytest.fixture(scope="module")
def union(store: Histories) -> Histories:
    return open_histories(union_of(store, store.folder.with_name("union"), [1, 2, 1]))


def test_a_union_reads_as_the_whole_store(store: Histories, union: Histories) -> None:
    some = np.array([20, 3, 3, 17])
    keys = [slice(None), slice(5, 20, 4), some, 7, (some, slice(30)), (slice(4, 9), slice(-20, None)), (11, slice(9))]
    for name, column in store.columns.items():
        joined = union.columns[name]
        assert (joined.shape, joined.dtype, joined.ndim) == (column.shape, column.dtype, column.ndim)
        assert all(np.array_equal(joined[key], column[key]) for key in keys)
        assert np.array_equal(np.asarray(joined), column)
    assert np.array_equal(union.row_tasks, store.row_tasks) and np.array_equal(union.rewards(), store.rewards())
    assert np.array_equal(union.final_success(), store.final_success()) and store.final_success().any()
    of_both = (source_adaptation(histories, [9, 20], 2, 3) for histories in (union, store))
    for one, two in zip(*of_both, strict=True):
        assert np.array_equal(one.returns, two.returns)
    for name in Rollout._fields:
        assert np.array_equal(union.columns[name][5:15], store.columns[name][5:15])
    assert np.array_equal(union.rewards(slice(5, 15)), store.rewards(slice(5, 15)))
    assert union.checksum != store.checksum


@pytest.mark.parametrize(("options", "objective", "plugin"), KINDS)
def test_batches_of_a_union_are_those_of_the_whole_store(
    store: Histories, union: Histories, options, objective, plugin
) -> None:
    assert_same_batches(*(mixture_of(one, options, objective, plugin) for one in (store, union)))


def replaced(manifest: dict, **new: Any) -> dict:
    return manifest | {"shards": [manifest["shards"][0] | new, *manifest["shards"][1:]]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: replaced(m, checksum="0"), "shard-0-of-3 is not the one that was united"),
        (lambda m: replaced(m, rows=7), "shard-0-of-3 has not 7 rows"),
        (lambda m: m | {"shards": [m["shards"][k] for k in (1, 0, 2)]}, "not those of the union, or not in its order"),
        (lambda m: m | {"env": m["env"] | {"max_episode_steps": 7}}, "shard-0-of-3 has another world"),
        (lambda m: m | {"shards": [{"folder": "a"}]}, "is not a manifest"),
        *((partial(replaced, folder=name), "shards .* are in other folders") for name in ("..", "a/b")),
        (lambda m: m | {"columns": m["columns"] | {"../x": m["columns"]["obs"]}}, "is not a manifest"),
        (lambda m: m | {"tasks": m["tasks"] | {"held_out": [10**6]}}, "its split has unknown tasks"),
    ],
)
def test_shards_that_do_not_make_up_the_union_are_refused(store: Histories, tmp_path: Path, change, message) -> None:
    folder = union_of(store, tmp_path / "union", [2, 1, 1])
    write_json(folder / "manifest.json", change(read_json(folder / "manifest.json")))
    with pytest.raises((DamagedHistoriesError, ConfigError), match=message):
        open_histories(folder)
    with pytest.raises((DamagedHistoriesError, ConfigError), match=message):
        HistoryWriter(folder, store.spec, NUM_STEPS, store.tasks, ROWS, {})


def test_a_union_that_is_its_own_shard_is_refused(store: Histories, tmp_path: Path) -> None:
    folder = union_of(store, tmp_path / "union", [2, 2])
    shutil.rmtree(folder / "shard-0-of-2")
    (folder / "shard-0-of-2").symlink_to(folder)
    with pytest.raises(DamagedHistoriesError, match="belongs to a shard, but also to a union"):
        open_histories(folder)


def test_a_damaged_shard_is_refused_and_a_union_is_not_written_to(store: Histories, tmp_path: Path) -> None:
    folder = union_of(store, tmp_path / "union", [2, 2])
    with pytest.raises(ConfigError, match="is a union of stores"):
        HistoryWriter(folder, store.spec, NUM_STEPS, store.tasks, ROWS, {})
    flip(folder / "shard-1-of-2/action.npy", -1)
    with pytest.raises(DamagedHistoriesError, match=r"shard-1-of-2/action\.npy is damaged"):
        open_histories(folder)


def test_a_union_of_another_kind_is_refused(store: Histories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the extension is not installed."""
    folder = union_of(store, tmp_path / "union", [2, 2])
    monkeypatch.setattr(history_store, "KINDS", [])
    with pytest.raises(DamagedHistoriesError, match="is not a manifest .*: shards may be of an extension that is not"):
        open_histories(folder)
