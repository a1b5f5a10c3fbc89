"""Learning histories on disk: one `.npy` file per column, and `manifest.json`.

A column is `[rows, time]`, or `[rows, time, K]` if an observation has K numbers. A row is one stream of one learner
over its whole life; rows are ordered by task, then learner, then environment.

Crash safety: disk space is reserved first, and a block of time is synced before the manifest counts it as `committed`
with its checksum. When a run ends, checksums of whole columns replace them. Nothing is unpickled.

A store that is made of others (`KINDS`) has a manifest that names them, and reads as one.
"""

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from icrl.config.modules import command_of, load_plugins
from icrl.config.options import refuse
from icrl.contracts import Json, PipelineError, Rollout
from icrl.data.columns import bytes_of, column_forms, rollout_of, row_chunks
from icrl.envs.rollout import OpenEpisodes, finished_episodes, numbered
from icrl.runs.files import Identity, check_owner, content_of, digest, has_form, read_json, reserve, sha256, write_json
from icrl.spaces import SPEC_FORM, EnvSpec

SCHEMA_VERSION, MANIFEST = 3, "manifest.json"
_FORM: Json = {
    **{"schema_version": int, "env": SPEC_FORM, "config": dict, "versions": dict, "committed": int, "complete": bool},
    "columns": {name: {"dtype": str, "shape": [int], "sha256": (str, type(None))} for name in Rollout._fields},
    "tasks": {"all": [[float]], "train": [int], "held_out": [int]},
    "rows": {"num_learners": int, "num_envs": int},
    "blocks": [{"start": int, "end": int, "sha256": {name: str for name in Rollout._fields}}],
    "owner": ({"program": str, "run": str}, type(None)),
}
_AGAIN = "its checksum is not the one in the manifest; restore it, or remove histories and logs of this run"
Owner = Identity | None  # the run that records, if there is one
Check = Callable[[Mapping[Path, Json]], list[Path]]


class DamagedHistoriesError(PipelineError):
    """A history store has missing, cut, changed or foreign files."""


class StoreKind(NamedTuple):
    """Stores that are made of others, which their manifest names under a key of its own."""

    key: str
    form: Any  # of what stands there
    identity: Callable[[Any], Json]  # the part of it that the checksum of the store depends on
    parts: Callable[[Path, Json], dict[Path, Json]]  # the others' manifests by folder; `DamagedHistoriesError` if wrong
    column: Callable[[Sequence[Path]], Any]  # a column, `[rows, time, ...]`, from the others' files of it


KINDS: list[StoreKind] = []  # of extensions


def store_kind(manifest: Json) -> StoreKind | None:
    """Kind of a store that is made of others; None for a store with columns of its own."""
    if manifest.keys() - _FORM.keys():
        load_plugins()
    return next((kind for kind in KINDS if kind.key in manifest), None)


def read_manifest(folder: Path) -> Json:
    """Read the manifest in `folder`, and check its form and each column's file size, of all stores that it is made of.
    Raises `ConfigError` if there are no histories, `DamagedHistoriesError` if a file does not match."""
    path, gone = folder / MANIFEST, "" if folder.exists() else ", which does not exist"
    refuse(not path.exists(), f"no histories in {folder}{gone}: run `{command_of('train_agents')}` with these options")
    with content_of(path, DamagedHistoriesError):
        manifest = read_json(path)
        if has_form(manifest.get("env"), SPEC_FORM):  # up to 0.8 it has counts in place of spaces
            manifest["env"] = json.loads(json.dumps(EnvSpec.of(manifest["env"]).to_json()))
    check_form(manifest, path)
    if kind := store_kind(manifest):
        kind.parts(folder, manifest)
        return manifest
    for name, column in manifest["columns"].items():
        with content_of(folder / f"{name}.npy", DamagedHistoriesError):
            found = np.lib.format.open_memmap(folder / f"{name}.npy", mode="r")  # arrays only, never pickles
        holds = {"dtype": str(found.dtype), "shape": list(found.shape), "sha256": column["sha256"]}
        if column != holds:
            raise DamagedHistoriesError(f"{folder / name}.npy holds {holds}, the manifest says {column}")
    return manifest


def check_form(manifest: Json, path: Path) -> None:
    """Raise `DamagedHistoriesError` unless the manifest has this version's form, the row count matches its learners
    and environments, and its blocks are contiguous up to the last committed step."""
    form = _FORM | ({kind.key: kind.form} if (kind := store_kind(manifest)) else {})
    alike = manifest.keys() == form.keys() and has_form(manifest, form)
    alike = alike and manifest["columns"].keys() == {*Rollout._fields}
    if manifest.get("schema_version") != SCHEMA_VERSION or not alike:
        more = ", ".join(sorted(manifest.keys() - form.keys()))
        other = f": {more} may be of an extension that is not installed" if more else ""
        raise DamagedHistoriesError(f"{path} is not a manifest of schema version {SCHEMA_VERSION}{other}")
    rows, blocks, tasks = manifest["rows"], manifest["blocks"], manifest["tasks"]
    if not all(0 <= task < len(tasks["all"]) for task in (*tasks["train"], *tasks["held_out"])):
        raise DamagedHistoriesError(f"{path}: its split has unknown tasks")
    num_rows = len(tasks["train"]) * rows["num_learners"] * rows["num_envs"]
    if any(column["shape"][:1] != [num_rows] for column in manifest["columns"].values()):
        raise DamagedHistoriesError(f"{path}: its tasks, learners and environments make {num_rows} rows, not its shape")
    last = 0 if manifest["complete"] else manifest["committed"]
    if [0, *(block["end"] for block in blocks)] != [*(block["start"] for block in blocks), last]:
        raise DamagedHistoriesError(f"{path}: its blocks do not cover the {last} committed steps one after another")


def checksum_of(manifest: Json) -> str:
    """Checksum of the tasks, the rows and every recorded step, independent of folders and package versions."""
    others = {kind.key: kind.identity(manifest[kind.key])} if (kind := store_kind(manifest)) else {}
    return digest({key: manifest[key] for key in ("columns", "tasks", "rows")} | others)


@dataclass(frozen=True)
class Histories:
    """A complete, checked history store: read-only memory-mapped columns and their manifest."""

    folder: Path
    manifest: Json
    columns: dict[str, Any]  # by the names of `Rollout`: arrays `[rows, time, ...]`, or what reads like them

    @property
    def spec(self) -> EnvSpec:
        """Sizes of the environment that was recorded."""
        return EnvSpec.of(self.manifest["env"])

    @property
    def tasks(self) -> Json:
        """Task split: the rows of all tasks as `all`, and indices into them as `train` and `held_out`."""
        return self.manifest["tasks"]

    @property
    def row_tasks(self) -> np.ndarray:
        """Task of each row, as an index into `tasks["all"]`."""
        rows = self.manifest["rows"]
        return np.repeat(self.tasks["train"], rows["num_learners"] * rows["num_envs"])

    def rewards(self, rows: Any = slice(None), steps: Any = slice(None)) -> np.ndarray:
        """Rewards of these rows and steps, `[rows, time]` float32."""
        recorded, values = self.columns["reward"][rows, steps], np.array(self.spec.reward_values, np.float32)
        return values[recorded] if len(values) else np.asarray(recorded)

    @property
    def checksum(self) -> str:
        return checksum_of(self.manifest)

    def final_success(self) -> np.ndarray:
        """Success rate of the episodes that end in the last tenth of each learner's life, `[train tasks, learners]`;
        0 if no episode ends there."""
        (num_rows, num_steps), rows = self.columns["reward"].shape, self.manifest["rows"]
        start = max(0, num_steps * 9 // 10 - self.spec.max_episode_steps)  # of an episode open at the tenth, or before
        chunks = row_chunks(num_rows, 8 * bytes_of(self.columns.values(), num_steps - start), rows["num_envs"])
        return np.concatenate([self._success(chunk, start) for chunk in chunks]).reshape(-1, rows["num_learners"])

    def _success(self, rows: slice, start: int) -> np.ndarray:
        """As `final_success`, of the learners of these rows, `[learners]`, from their steps after `start`."""
        num_envs, num_rows = self.manifest["rows"]["num_envs"], rows.stop - rows.start
        columns = {name: column[rows, start:].swapaxes(0, 1) for name, column in self.columns.items()}
        steps = rollout_of(self.spec, columns)  # [T, rows]
        episodes, _ = finished_episodes(steps, OpenEpisodes.none(num_rows), self.spec)
        first = self.columns["reward"].shape[1] * 9 // 10 - start
        earlier = (steps.terminated | steps.truncated)[:first].sum(0).numpy()
        late = numbered(episodes.stream) >= earlier[episodes.stream]
        learner, num_learners = episodes.stream[late] // num_envs, num_rows // num_envs
        ended = np.bincount(learner, minlength=num_learners)
        won = np.bincount(learner, weights=episodes.success[late], minlength=num_learners)
        return won / np.maximum(ended, 1)


def open_histories(folder: str | Path) -> Histories:
    """Open a complete history store, read-only, after checking its files against their checksums.
    Raises `ConfigError` if it is missing or not complete, `DamagedHistoriesError` for missing or changed files."""
    manifest = read_manifest(folder := Path(folder).absolute())
    done = f"{manifest['committed']} of {manifest['columns']['obs']['shape'][1]} steps"
    again = f"run `{command_of('train_agents')}` with the same options to continue"
    refuse(not manifest["complete"], f"the histories in {folder} are not complete ({done}): {again}")
    kind = store_kind(manifest)
    stores = kind.parts(folder, manifest) if kind else {folder: manifest}
    load_plugins()
    for path in CHECKS[-1](stores):
        raise DamagedHistoriesError(f"{path} is damaged: {_AGAIN}")
    read = kind.column if kind else lambda files: np.load(files[0], mmap_mode="r")
    columns = {name: read([store / f"{name}.npy" for store in stores]) for name in Rollout._fields}
    return Histories(folder, manifest, columns)


def damaged_files(stores: Mapping[Path, Json]) -> list[Path]:
    """Columns that differ from the checksums in the manifests of complete `stores`, by folder. All files are read, a
    thread of PyTorch's each."""
    columns = [(folder, *column) for folder, manifest in stores.items() for column in manifest["columns"].items()]
    files = {folder / f"{name}.npy": about["sha256"] for folder, name, about in columns}
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        return [path for path, found in zip(files, pool.map(sha256, files), strict=True) if found != files[path]]


CHECKS: list[Check] = [damaged_files]  # extensions append theirs; the last one counts


def _check_committed(folder: Path, manifest: Json, columns: dict[str, np.ndarray], steps: int = 0) -> None:
    """Refuse complete columns, or else blocks that begin before `steps`, that are not what was committed."""
    for name, column in columns.items():
        path = folder / f"{name}.npy"
        if manifest["complete"] and sha256(path) != manifest["columns"][name]["sha256"]:
            raise DamagedHistoriesError(f"{path} is damaged: {_AGAIN}")
        for start, end, checksums in ((one["start"], one["end"], one["sha256"]) for one in manifest["blocks"]):
            if start < steps and _checksum(column[:, start:end]) != checksums[name]:
                raise DamagedHistoriesError(f"{path} is damaged in the block of steps {start} to {end - 1}: {_AGAIN}")


def _checksum(block: np.ndarray) -> str:
    checksum = hashlib.sha256()
    for rows in row_chunks(len(block), bytes_of([block], block.shape[1])):
        checksum.update(np.ascontiguousarray(block[rows]).data)
    return checksum.hexdigest()


class HistoryWriter:
    """Writer of one history store, from its start or from where an interrupted run stopped."""

    def __init__(
        self, folder: Path, spec: EnvSpec, num_steps: int, tasks: Json, rows: Json, config: Json, owner: Owner = None
    ) -> None:
        """Open the store in `folder`, or create it with room for `num_steps` steps per row.

        `tasks`: the split. `rows`: learners and environments per training task. `config`: the recorded configuration.
        `owner`: the run that records. Raises `PipelineError` if the histories there belong to another run."""
        self.folder = folder
        if not (folder / MANIFEST).exists():
            columns = self._reserve(spec, len(tasks["train"]) * rows["num_learners"] * rows["num_envs"], num_steps)
            versions = {"python": platform.python_version()}
            versions |= {name: importlib.metadata.version(name) for name in ("torch", "numpy", "gymnasium")}
            about = {"schema_version": SCHEMA_VERSION, "columns": columns, "tasks": tasks, "rows": rows}
            about |= {"env": spec.to_json(), "config": config, "versions": versions, "committed": 0, "complete": False}
            write_json(folder / MANIFEST, about | {"blocks": list[Json](), "owner": owner and owner._asdict()})
        self.manifest = read_manifest(folder)
        refuse(store_kind(self.manifest), f"{folder} is a union of stores, which cannot grow: give another name=")
        if owner and self.manifest["owner"]:
            check_owner(folder / MANIFEST, Identity(**self.manifest["owner"]), owner)
        self._columns = {name: np.load(folder / f"{name}.npy", mmap_mode="r+") for name in Rollout._fields}
        self.spec = EnvSpec.of(self.manifest["env"])
        self.num_steps: int = self._columns["obs"].shape[1]  # that a row has room for
        self._pending: list[Rollout] = []

    def _reserve(self, spec: EnvSpec, *shape: int) -> Json:
        """Reserve the disk space of every column; returns their description."""
        columns: Json = {}
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, (dtype, of_step) in column_forms(spec).items():
            path, whole = self.folder / f"{name}.npy", (*shape, *of_step)
            try:
                np.lib.format.open_memmap(path, "w+", np.dtype(dtype), whole, version=(2, 0))
            except OSError as error:
                raise PipelineError(f"cannot write {path}: {error.strerror}") from error
            with path.open("r+b") as file:
                reserve(file, path.stat().st_size, path)
            columns[name] = {"dtype": dtype, "shape": list(whole), "sha256": None}
        return columns

    def add(self, rollout: Rollout) -> None:
        """Keep `[T, rows]` transitions in memory; `commit` drops the steps beyond the end of the store."""
        if self.spec.reward_values:
            rollout = rollout._replace(reward=self.spec.reward_index(rollout.reward))
        dtypes = (getattr(torch, str(column.dtype)) for column in self._columns.values())
        self._pending.append(Rollout(*(column.to(dtype) for column, dtype in zip(rollout, dtypes, strict=True))))

    def commit(self) -> None:
        """Write the transitions added since the last commit as the steps after it, and make them durable."""
        if self._pending and (start := self.manifest["committed"]) < self.num_steps:
            checksums: dict[str, str] = {}
            end = min(start + sum(len(rollout.obs) for rollout in self._pending), self.num_steps)
            for name, column in self._columns.items():
                added = torch.cat([getattr(rollout, name) for rollout in self._pending])[: end - start]
                column[:, start:end] = block = added.transpose(0, 1).cpu().numpy()
                checksums[name] = _checksum(block)
                try:
                    column.flush()
                except OSError as error:
                    raise PipelineError(f"cannot write {self.folder / name}.npy: {error.strerror}") from error
            self.manifest["blocks"].append({"start": start, "end": end, "sha256": checksums})
            self.manifest["committed"] = end
            write_json(self.folder / MANIFEST, self.manifest)
        self._pending = []

    def keep(self, steps: int) -> None:
        """Continue after the first `steps`, which must be what was committed; later ones will be written again."""
        _check_committed(self.folder, self.manifest, self._columns, steps)
        if steps >= self.manifest["committed"]:
            return
        blocks = [block for block in self.manifest["blocks"] if block["end"] <= steps]
        start = blocks[-1]["end"] if blocks else 0
        if start < steps:  # inside a block, or in a store that was complete
            checksums = {name: _checksum(column[:, start:steps]) for name, column in self._columns.items()}
            blocks.append({"start": start, "end": steps, "sha256": checksums})
        self.manifest |= {"blocks": blocks, "committed": steps, "complete": False}
        for column in self.manifest["columns"].values():
            column["sha256"] = None
        write_json(self.folder / MANIFEST, self.manifest)  # before any of what comes after is written

    def finish(self) -> None:
        """Mark the store as complete, if it is what was committed: checksums of columns replace those of blocks."""
        checksums = {name: sha256(self.folder / f"{name}.npy") for name in self._columns}
        # The check comes after the checksums were made, so that they are of the committed steps.
        _check_committed(self.folder, self.manifest, self._columns, self.num_steps)
        for name, column in self.manifest["columns"].items():
            column["sha256"] = checksums[name]
        self.manifest |= {"blocks": [], "complete": True}
        write_json(self.folder / MANIFEST, self.manifest)
