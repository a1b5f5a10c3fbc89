"""Learning histories on disk: one `.npy` per column, `[rows, time]` (or `[rows, time, K]` where an observation is many
numbers), and `manifest.json`.

A row is one stream of one learner for its whole life; rows are ordered task by task, learner by learner, environment by
environment. Space is reserved before anything is written; a block of time is written and synced before the manifest
says so (`committed`) and has the block's checksum, which is checked before a run goes on and when all is there; then
checksums of the columns take the place of those of the blocks. Opening checks everything and unpickles nothing.
"""

import hashlib
import importlib.metadata
import io
import platform
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from icrl.contracts import ConfigError, EnvSpec, Json, PipelineError, Rollout
from icrl.data.manifests import (
    MANIFEST,
    SCHEMA_VERSION,
    DamagedHistoriesError,
    check_form,
    check_recorded,
    checksum_of,
    upgrade,
)
from icrl.envs.episodes import OpenEpisodes, finished_episodes
from icrl.runs.files import read_json, reserve, sha256, write_json
from icrl.runs.identity import Identity

OBSERVATIONS = ("obs", "next_obs")  # the columns that may have a third axis


def column_dtypes(spec: EnvSpec) -> dict[str, str]:
    """The smallest dtype of each column."""
    largest = {
        "obs": spec.num_obs - 1,
        "action": spec.num_actions - 1,
        "reward": spec.num_rewards - 1,
        "next_obs": spec.num_obs - 1,
        "timestep": spec.max_episode_steps - 1,
        "terminated": 1,
        "truncated": 1,
        "optimal_action": spec.num_actions,  # where nobody knows it
    }
    return {name: str(np.min_scalar_type(largest[name])) for name in Rollout._fields}


class HistoryWriter:
    """Writes one folder of histories, from its start or from where an interrupted run left off."""

    def __init__(
        self,
        folder: Path,
        spec: EnvSpec,
        num_steps: int,
        tasks: Json,
        rows: Json,
        config: Json,
        owner: Identity | None = None,
    ) -> None:
        """Open `folder` or create it with room for `[rows, num_steps]`. `tasks` is the task table, `rows` how many
        learners and environments each training task has, `config` the configuration as nested dicts, `owner` the run
        that records. Raises `PipelineError` where the histories there are of another."""
        self.folder = folder
        num_rows = len(tasks["train"]) * rows["num_learners"] * rows["num_envs"]
        if not (folder / MANIFEST).exists():
            self._create(spec, (num_rows, num_steps), tasks, rows, config, owner)
        self.manifest = read_manifest(folder)
        if owner:
            check_recorded(folder, self.manifest, owner)
        self._columns = {name: np.load(folder / f"{name}.npy", mmap_mode="r+") for name in Rollout._fields}
        self._pending: list[Rollout] = []

    @property
    def num_steps(self) -> int:
        return self._columns["obs"].shape[1]

    def add(self, rollout: Rollout) -> None:
        """Take `[T, rows]` transitions into memory; steps past the end of the histories are dropped by `commit`."""
        self._pending.append(Rollout(*(self._small(name, getattr(rollout, name)) for name in Rollout._fields)))

    def commit(self, start: int) -> None:
        """Write what was added since the last commit as the steps from `start` on, and make it durable."""
        if self._pending and start < self.num_steps:
            if start < self.manifest["committed"]:
                self.keep(start)
            checksums: dict[str, str] = {}
            end = min(start + sum(len(rollout.obs) for rollout in self._pending), self.num_steps)
            for name, column in self._columns.items():
                block = torch.cat([getattr(rollout, name) for rollout in self._pending]).transpose(0, 1).cpu().numpy()
                column[:, start:end] = block[:, : end - start]
                checksums[name] = _checksum(block[:, : end - start])
                try:
                    column.flush()
                except OSError as error:
                    raise PipelineError(f"cannot write {self.folder / name}.npy: {error.strerror}") from error
            self.manifest["blocks"].append({"start": start, "end": end, "sha256": checksums})
            self.manifest["committed"] = end
            write_json(self.folder / MANIFEST, self.manifest)
        self._pending = []

    def keep(self, steps: int) -> None:
        """Go on after the first `steps`, what was committed later is to be written again. Raises
        `DamagedHistoriesError` where they are not what was committed."""
        self._check(steps)
        if steps >= self.manifest["committed"]:
            return
        blocks = [block for block in self.manifest["blocks"] if block["end"] <= steps]
        start = blocks[-1]["end"] if blocks else 0
        if start < steps:  # amid a block, or histories that were complete
            columns = self._columns.items()
            checksums = {name: _checksum(column[:, start:steps]) for name, column in columns}
            blocks.append({"start": start, "end": steps, "sha256": checksums})
        self.manifest |= {"blocks": blocks, "committed": steps, "complete": False}
        for column in self.manifest["columns"].values():
            column["sha256"] = None

    def finish(self) -> None:
        """Put checksums of the columns in the place of those of the blocks: from now on the histories can be read.
        Raises `DamagedHistoriesError` where the columns are not what was committed."""
        whole = {name: sha256(self.folder / f"{name}.npy") for name in self._columns}
        self._check(self.num_steps)  # after these were made: so they are of what was committed
        for name, column in self.manifest["columns"].items():
            column["sha256"] = whole[name]
        self.manifest |= {"blocks": [], "complete": True}
        write_json(self.folder / MANIFEST, self.manifest)

    def _check(self, steps: int) -> None:
        """Raise `DamagedHistoriesError` unless the blocks that begin before `steps` are what was committed."""
        if self.manifest["complete"]:
            _check_columns(self.folder, self.manifest)
        for block in self.manifest["blocks"]:
            start, end = block["start"], block["end"]
            for name, column in self._columns.items():
                if start < steps and _checksum(column[:, start:end]) != block["sha256"][name]:
                    raise DamagedHistoriesError(
                        f"{self.folder / name}.npy is damaged in the block of steps {start} to {end - 1}: its checksum "
                        "is not the one in the manifest; put it back as it was, or remove the histories and the logs "
                        "of this run to record it anew"
                    )

    def _small(self, name: str, column: Tensor) -> Tensor:
        dtype = getattr(torch, self.manifest["columns"][name]["dtype"])
        return column.to(dtype)

    def _create(
        self, spec: EnvSpec, shape: tuple[int, int], tasks: Json, rows: Json, config: Json, owner: Identity | None
    ) -> None:
        columns = {}
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, dtype in column_dtypes(spec).items():
            header, whole = io.BytesIO(), (*shape, *(spec.obs_shape if name in OBSERVATIONS else ()))
            about = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": whole}
            np.lib.format.write_array_header_2_0(header, about)
            path = self.folder / f"{name}.npy"
            try:
                path.write_bytes(header.getvalue())
            except OSError as error:
                raise PipelineError(f"cannot write {path}: {error.strerror}") from error
            reserve(path, header.tell() + int(np.prod(whole)) * np.dtype(dtype).itemsize)
            columns[name] = {"dtype": dtype, "shape": list(whole), "sha256": None}
        packages = ("torch", "numpy", "gymnasium")
        manifest = {
            "schema_version": SCHEMA_VERSION,
            "columns": columns,
            "tasks": tasks,
            "rows": rows,
            "env": spec._asdict(),
            "config": config,
            "versions": {"python": platform.python_version()}
            | {name: importlib.metadata.version(name) for name in packages},
            "committed": 0,
            "complete": False,
            "blocks": list[Json](),
            "owner": owner and owner._asdict(),
        }
        write_json(self.folder / MANIFEST, manifest)


@dataclass(frozen=True)
class Histories:
    """Complete, checked histories: read-only columns `[rows, time]` and their manifest."""

    folder: Path
    manifest: Json
    columns: dict[str, np.ndarray]

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec.of(self.manifest["env"])

    @property
    def row_tasks(self) -> np.ndarray:
        """Index into the table of all tasks for each row."""
        per_task = self.manifest["rows"]["num_learners"] * self.manifest["rows"]["num_envs"]
        return np.repeat(self.manifest["tasks"]["train"], per_task)

    @property
    def checksum(self) -> str:
        """See `checksum_of`."""
        return checksum_of(self.manifest)

    def final_success(self) -> np.ndarray:
        """Fraction of successes among the episodes that end in the last tenth of each learner's life,
        `[train tasks, learners]`; 0 where none does."""
        rows = self.manifest["rows"]
        num_rows, num_steps = self.columns["reward"].shape
        first, open_episodes = num_steps * 9 // 10, OpenEpisodes.none(num_rows)
        if first:  # an episode that is open then has begun at most this many steps before
            earlier = slice(max(0, first - self.spec.max_episode_steps), first)
            _, open_episodes = finished_episodes(self._steps(earlier), open_episodes, self.spec)
        episodes, _ = finished_episodes(self._steps(slice(first, None)), open_episodes, self.spec)
        learner = episodes.stream // rows["num_envs"]
        num_learners = num_rows // rows["num_envs"]
        ended = np.bincount(learner, minlength=num_learners)
        won = np.bincount(learner, weights=episodes.success, minlength=num_learners)
        return (won / np.maximum(ended, 1)).reshape(-1, rows["num_learners"])

    def _steps(self, steps: slice) -> Rollout:
        """All rows at these steps, `[T, rows]`."""
        columns = (self.columns[name][:, steps].swapaxes(0, 1) for name in Rollout._fields)
        return Rollout(*(torch.from_numpy(column.copy()) for column in columns))


def read_manifest(folder: Path) -> Json:
    """The manifest of `folder`, with its form checked and every column's file of the size it says.

    Raises `ConfigError` where there are no histories, `DamagedHistoriesError` where they are not whole."""
    path = folder / MANIFEST
    if not path.exists():
        raise ConfigError(f"no histories in {folder}: run `python -m src.train_agents` with the same options first")
    try:
        manifest = read_json(path)
    except PipelineError as error:
        raise DamagedHistoriesError(str(error)) from error
    upgrade(manifest, path)
    check_form(manifest, path)
    for name, column in manifest["columns"].items():
        try:
            found = np.lib.format.open_memmap(folder / f"{name}.npy", mode="r")  # nothing but arrays, no pickles
        except Exception as error:  # NumPy's parser of headers raises whatever it meets
            raise DamagedHistoriesError(f"{folder / name}.npy cannot be read: {error}") from error
        holds = {"dtype": str(found.dtype), "shape": list(found.shape)}
        if column != holds | {"sha256": column["sha256"]}:
            raise DamagedHistoriesError(f"{folder / name}.npy holds {holds}, the manifest says {column}")
    return manifest


def _check_columns(folder: Path, manifest: Json) -> None:
    """Raise `DamagedHistoriesError` unless the columns are those that were finished."""
    for name, column in manifest["columns"].items():
        if sha256(folder / f"{name}.npy") != column["sha256"]:
            raise DamagedHistoriesError(f"{folder / name}.npy is damaged: its checksum is not the one in the manifest")


def _checksum(block: np.ndarray) -> str:
    """The SHA-256 of a part of a column."""
    return hashlib.sha256(np.ascontiguousarray(block).data).hexdigest()


def open_histories(folder: Path) -> Histories:
    """Open complete histories after checking every byte; see `read_manifest` for the errors."""
    manifest = read_manifest(folder)
    if not manifest["complete"]:
        total = manifest["columns"]["obs"]["shape"][1]
        raise ConfigError(
            f"the histories in {folder} are not complete ({manifest['committed']} of {total} steps): "
            "run `python -m src.train_agents` with the same options again, it continues"
        )
    _check_columns(folder, manifest)
    columns = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in Rollout._fields}
    return Histories(folder, manifest, columns)
