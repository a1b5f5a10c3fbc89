"""Union of shards that reads as one store.

The manifest of a union is an ordinary one with `shards` besides: folder, rows and checksum of each, in the order of its
rows. A shard is an ordinary complete store with the rows of its own training tasks. A learner, its streams and their
seeds are those that it has in a run of all tasks, so the shards have the rows of the whole store, bit for bit.
"""

import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from icrl.config.options import quoted
from icrl.contracts import Json, PipelineError
from icrl.data.history_store import KINDS, MANIFEST, DamagedHistoriesError, StoreKind, checksum_of, read_manifest
from icrl.runs.files import Identity, content_of, read_json, write_json


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
        rows, *steps = key if isinstance(key, tuple) else (key,)
        chosen = np.arange(len(self))[rows]
        part, row = self.place(chosen)
        if chosen.ndim == 0:
            return self.parts[int(part)][(int(row), *steps)]
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


def shards_of(folder: Path, manifest: Json) -> dict[Path, Json]:
    """Manifest of each shard of the union in `folder`, by its folder. Raises `DamagedHistoriesError` if they do not
    make up the union, or one is a union itself."""
    path, entries = folder / MANIFEST, manifest["shards"]
    names = [entry["folder"] for entry in entries]
    if any(name in ("", "..") or Path(name).name != name for name in names):
        raise DamagedHistoriesError(f"{path}: its shards {quoted(names)} are in other folders")
    shards = {folder / name: _read_shard(folder / name) for name in names}
    if wrong := _differences(manifest, [(entry, shards[folder / entry["folder"]]) for entry in entries]):
        raise DamagedHistoriesError(f"{path}: {'; '.join(wrong)}")
    return shards


def unite(folder: Path, shards: Sequence[Path], train: list[int], owner: Identity) -> None:
    """Write the manifest that makes the complete stores in `shards`, subfolders of `folder` in the order of their rows,
    one store of the run `owner` with the training tasks `train`. Raises `PipelineError` if a shard is incomplete."""
    manifests = [read_manifest(shard) for shard in shards]
    for shard, manifest in zip(shards, manifests, strict=True):
        if not manifest["complete"]:
            raise PipelineError(f"the histories in {shard} are not complete: the same command continues")
    first, entries = manifests[0], list[dict[str, object]]()
    num_rows = [manifest["columns"]["obs"]["shape"][0] for manifest in manifests]
    for shard, manifest, number in zip(shards, manifests, num_rows, strict=True):
        entries.append({"folder": shard.name, "rows": number, "checksum": checksum_of(manifest)})
    columns = {
        name: column | {"shape": [sum(num_rows), *column["shape"][1:]], "sha256": None}
        for name, column in first["columns"].items()
    }
    united = first | {"columns": columns, "tasks": first["tasks"] | {"train": train}, "owner": owner._asdict()}
    united["config"] = first["config"] | {"name": folder.name}
    write_json(folder / MANIFEST, united | {"shards": entries})


def _read_shard(folder: Path) -> Json:
    if (path := folder / MANIFEST).exists():
        with content_of(path, DamagedHistoriesError):
            if "shards" in read_json(path):
                raise DamagedHistoriesError(f"{path} belongs to a shard, but also to a union")
    return read_manifest(folder)


def joined(files: Sequence[Path]) -> "np.ndarray | JoinedColumn":
    """Column of a union whose shards have these `files`, mapped into memory."""
    _allow_open_files(len(files))
    parts = [np.load(file, mmap_mode="r") for file in files]
    return parts[0] if len(parts) == 1 else JoinedColumn(parts)


def _checksums(entries: list[Json]) -> list[Any]:
    return [entry["checksum"] for entry in entries]


def _allow_open_files(number: int) -> None:
    """Let this process keep `number` further files open, as far as the system allows: a memory map needs one."""
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY or most > limit:
        wanted = limit + number
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if most < 0 else min(wanted, most), most))


def _differences(manifest: Json, shards: Sequence[tuple[Json, Json]]) -> list[str]:
    """Reasons why `shards`, an entry of the union's `manifest` and the manifest of each, do not make up the union."""
    found = list[str]()
    for entry, shard in shards:
        wrong = "" if shard["complete"] else "is not complete"
        wrong = wrong or ("is not the one that was united" if entry["checksum"] != checksum_of(shard) else "")
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
    if not found and trained != manifest["tasks"]["train"]:
        return ["the training tasks of the shards are not those of the union, or not in its order"]
    return found


KINDS.append(
    StoreKind(
        key="shards",
        form=[{"folder": str, "rows": int, "checksum": str}],
        parts=shards_of,
        column=joined,
        identity=_checksums,
    )
)
