"""Checksums of the columns of stores, which are checked once, in parallel.

Files are compared with their checksums whenever a store is opened. A file of 64 MiB or more is noted in `checked.json`
beside it once it has passed, with size, inode and times of change, and is read again only if one of these differs. So
the note cannot hide a write, but a disk that loses bits by itself is found only without it: remove `checked.json`.
"""

import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from icrl.contracts import Json, PipelineError
from icrl.runs.files import read_json, sha256, write_json

CHECKED, NOTED_FROM = "checked.json", 1 << 26  # bytes
_SETTLED = 2 * 10**9  # nanoseconds after which a further change has another time, on every file system


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
    status = os.stat(path)
    times = {"mtime_ns": status.st_mtime_ns, "ctime_ns": status.st_ctime_ns}
    return {"sha256": checksum, "size": status.st_size, "inode": status.st_ino} | times


def _check(folder: Path, name: str, checksum: str) -> Json | None:
    """Read a column; returns None if it has not this `checksum`, or else its note: empty for a small file, and for one
    that was written so lately that another write might leave the same times."""
    path, now = folder / f"{name}.npy", time.time_ns()
    state = _state(path, checksum)
    if sha256(path) != checksum:
        return None
    settled = now - max(state["mtime_ns"], state["ctime_ns"]) > _SETTLED
    return state if settled and state["size"] >= NOTED_FROM else {}
