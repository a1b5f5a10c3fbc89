"""Union of shards that reads as one store, and checksums of columns that are checked once, in parallel.

The manifest of a union is an ordinary one with `shards` besides: folder, rows and checksum of each, in the order of its
rows. A shard is an ordinary complete store with the rows of its own training tasks.

Files are compared with their checksums whenever a store is opened. A file of 64 MiB or more is noted in `checked.json`
beside it once it has passed, with size, inode and times of change, and is read again only if one of these differs. So
the note cannot hide a write, but a disk that loses bits by itself is found only without it: remove `checked.json`.
"""

import os
import resource
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from icrl.contracts import Json, PipelineError
from icrl.runs.files import read_json, sha256, write_json

CHECKED, NOTED_FROM = "checked.json", 1 << 26  # bytes
_SETTLED = 2 * 10**9  # nanoseconds after which a further change has another time, on every file system


class JoinedColumn:
    """Column of a union: the rows of its `parts`, one after the other. It reads like an array by rows, or by rows and a
    slice of steps, and no part is read as a whole unless all rows are."""

    def __init__(self, parts: Sequence[np.ndarray]) -> None:
        self.parts = parts
        self.ends = np.cumsum([len(part) for part in parts])  # the first row after each part
        self.shape, self.dtype, self.ndim = (int(self.ends[-1]), *parts[0].shape[1:]), parts[0].dtype, parts[0].ndim

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> np.ndarray:
        rows, *rest = key if isinstance(key, tuple) else (key,)
        steps = tuple(rest)
        chosen = np.arange(len(self))[rows]
        if chosen.ndim == 0:
            part, row = self.place(chosen)
            return self.parts[int(part)][(int(row), *steps)]
        part, row = self.place(chosen)
        found = [(part == number, self.parts[number]) for number in np.unique(part)]
        if len(found) == 1:
            return found[0][1][(row, *steps)]
        empty = self.parts[0][(slice(0), *steps)]
        joined = np.empty((len(chosen), *empty.shape[1:]), self.dtype)
        for mask, column in found:
            joined[mask] = column[(row[mask], *steps)]
        return joined

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.concatenate(self.parts).astype(dtype or self.dtype, copy=False)

    def place(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Part of each row, and its number there."""
        part = np.searchsorted(self.ends, rows, side="right")
        return part, rows - np.concatenate([[0], self.ends])[part]


def joined(parts: Sequence[np.ndarray]) -> "np.ndarray | JoinedColumn":
    """Column of a store with these parts."""
    return parts[0] if len(parts) == 1 else JoinedColumn(parts)


def parts_of(column: Any) -> Sequence[np.ndarray]:
    """Arrays that a column of a store is made of."""
    return column.parts if isinstance(column, JoinedColumn) else [column]


def allow_open_files(number: int) -> None:
    """Let this process keep `number` further files open, as far as the system allows: a memory map needs one."""
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY or most > limit:
        wanted = limit + number
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if most < 0 else min(wanted, most), most))


def differences(manifest: Json, shards: Sequence[tuple[Json, Json]], checksums: Sequence[str]) -> list[str]:
    """Reasons why the `shards`, an entry of the union's `manifest` and the manifest of each, do not make up the union.
    `checksums` are those of the shards' manifests."""
    found = list[str]()
    for (entry, shard), checksum in zip(shards, checksums, strict=True):
        wrong = "" if shard["complete"] else "is not complete"
        wrong = wrong or ("is not the one that was united" if entry["checksum"] != checksum else "")
        of_world = ("all", "held_out")
        same = shard["env"] == manifest["env"] and shard["rows"] == manifest["rows"]
        same = same and all(shard["tasks"].get(name) == manifest["tasks"].get(name) for name in of_world)
        wrong = wrong or ("" if same else "has another world, split, or number of learners")
        of_rows = {name: column["shape"][0] for name, column in shard["columns"].items()}
        wrong = wrong or ("" if {*of_rows.values()} == {entry["rows"]} else f"has not {entry['rows']} rows")
        for name, column in manifest["columns"].items():
            there = shard["columns"][name]
            alike = (there["dtype"], there["shape"][1:]) == (column["dtype"], column["shape"][1:])
            wrong = wrong or ("" if alike else f"has steps of another form in column {name}")
        found += [f"{entry['folder']} {wrong}"] if wrong else []
    trained = [task for _, shard in shards for task in shard["tasks"]["train"]]
    in_order = trained == manifest["tasks"]["train"]
    return found or ([] if in_order else ["the training tasks of the shards are not those of the union, in its order"])


def damaged_files(stores: Mapping[Path, Json]) -> list[Path]:
    """Columns that differ from the checksums in the manifests of complete `stores`, by folder. All files are read, a
    thread of PyTorch's each, but those that were noted as checked and have not been written since."""
    notes = {folder: _note(folder) for folder in stores}
    todo: list[tuple[Path, str, str]] = []
    for folder, manifest in stores.items():
        for name, column in manifest["columns"].items():
            if notes[folder].get(name) != _state(folder / f"{name}.npy", column["sha256"]):
                todo.append((folder, name, column["sha256"]))
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        results = [*pool.map(_check, *zip(*todo, strict=True))] if todo else []
    passed = [(folder, name, note) for (folder, name, _), note in zip(todo, results, strict=True) if note]
    for folder in {folder for folder, _, _ in passed}:
        notes[folder] |= {name: note for where, name, note in passed if where == folder}
        with suppress(PipelineError):  # a folder that may only be read is checked every time
            write_json(folder / CHECKED, notes[folder])
    return [folder / f"{name}.npy" for (folder, name, _), note in zip(todo, results, strict=True) if note is None]


def _note(folder: Path) -> Json:
    with suppress(PipelineError):
        return read_json(folder / CHECKED, {str: dict})
    return dict[str, Any]()


def _state(path: Path, checksum: str) -> Json:
    """State of a file as it is noted: its checksum, and what changes whenever it is written or replaced."""
    found = os.stat(path)
    times = {"mtime_ns": found.st_mtime_ns, "ctime_ns": found.st_ctime_ns}
    return {"sha256": checksum, "size": found.st_size, "inode": found.st_ino} | times


def _check(folder: Path, name: str, checksum: str) -> Json | None:
    """Read a column; returns None if it has not this `checksum`, or else its note: empty for a small file, and for one
    that was written so lately that another write might leave the same times."""
    path, now = folder / f"{name}.npy", time.time_ns()
    state = _state(path, checksum)
    if sha256(path) != checksum:
        return None
    settled = now - max(state["mtime_ns"], state["ctime_ns"]) > _SETTLED
    return state if settled and state["size"] >= NOTED_FROM else {}
