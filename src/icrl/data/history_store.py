"""Learning histories on disk: one `.npy` file per column, and `manifest.json`.

A column is `[rows, time]`, or `[rows, time, K]` if an observation has K numbers. A row is one stream of one learner
over its whole life; rows are ordered by task, then learner, then environment.

Crash safety: disk space is reserved first, and a block of time is synced before the manifest counts it as `committed`
with its checksum. These are checked when a run resumes or ends; then checksums of whole columns replace them. Opening
checks every byte and unpickles nothing.
"""

import importlib.metadata
import platform
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from icrl.contracts import ConfigError, EnvSpec, Json, PipelineError, Rollout
from icrl.data import manifests
from icrl.data.manifests import MANIFEST, DamagedHistoriesError, block_checksum, read_manifest
from icrl.envs.rollout import OpenEpisodes, finished_episodes
from icrl.runs.files import Identity, check_owner, reserve, sha256, write_json

OBSERVATIONS = ("obs", "next_obs")  # the columns that may have a third axis


def column_dtypes(spec: EnvSpec) -> dict[str, str]:
    """The smallest dtype that holds the values of each column."""
    largest = dict.fromkeys(OBSERVATIONS, spec.num_obs - 1) | {"action": spec.num_actions - 1}
    largest |= {"reward": spec.num_rewards - 1, "timestep": spec.max_episode_steps - 1, "terminated": 1, "truncated": 1}
    largest["optimal_action"] = spec.num_actions  # this value means that the optimal action is unknown
    return {name: str(np.min_scalar_type(largest[name])) for name in Rollout._fields}


@dataclass(frozen=True)
class Histories:
    """A complete, checked history store: read-only memory-mapped columns and their manifest."""

    folder: Path
    manifest: Json
    columns: dict[str, np.ndarray]  # by the names of `Rollout`, `[rows, time]` or `[rows, time, K]`

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
        per_task = self.manifest["rows"]["num_learners"] * self.manifest["rows"]["num_envs"]
        return np.repeat(self.tasks["train"], per_task)

    @property
    def checksum(self) -> str:
        """See `manifests.checksum_of`."""
        return manifests.checksum_of(self.manifest)

    def final_success(self) -> np.ndarray:
        """Success rate of the episodes that end in the last tenth of each learner's life, `[train tasks, learners]`;
        0 if no episode ends there."""
        rows = self.manifest["rows"]
        num_rows, num_steps = self.columns["reward"].shape
        first, open_episodes = num_steps * 9 // 10, OpenEpisodes.none(num_rows)
        if first:  # an episode that is open at `first` began at most this many steps earlier
            earlier = slice(max(0, first - self.spec.max_episode_steps), first)
            _, open_episodes = finished_episodes(self._steps(earlier), open_episodes, self.spec)
        episodes, _ = finished_episodes(self._steps(slice(first, None)), open_episodes, self.spec)
        learner, num_learners = episodes.stream // rows["num_envs"], num_rows // rows["num_envs"]
        ended = np.bincount(learner, minlength=num_learners)
        won = np.bincount(learner, weights=episodes.success, minlength=num_learners)
        return (won / np.maximum(ended, 1)).reshape(-1, rows["num_learners"])

    def _steps(self, steps: slice) -> Rollout:
        """All rows at these steps, `[T, rows]`."""
        columns = (self.columns[name][:, steps].swapaxes(0, 1) for name in Rollout._fields)
        return Rollout(*(torch.from_numpy(column.copy()) for column in columns))


def open_histories(folder: str | Path) -> Histories:
    """Open a complete history store read-only, after checking every byte against its checksums.

    Raises `ConfigError` if there are no histories or they are not complete, `DamagedHistoriesError` if a file is
    missing or changed.

    Example::

        histories = open_histories("histories/default")
        first = histories.tasks["all"][histories.row_tasks[0]]  # task of the first row
        actions = histories.columns["action"][0]  # [time], memory-mapped
        rewards = np.array(histories.spec.reward_values)[histories.columns["reward"][0]]
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    if not manifest["complete"]:
        total = manifest["columns"]["obs"]["shape"][1]
        raise ConfigError(
            f"the histories in {folder} are not complete ({manifest['committed']} of {total} steps): "
            "run `python -m src.train_agents` with the same options again, it continues"
        )
    manifests.check_columns(folder, manifest)
    columns = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in Rollout._fields}
    return Histories(folder, manifest, columns)


class HistoryWriter:
    """Writer of one history store, from its start or from where an interrupted run stopped."""

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
        """Open the store in `folder`, or create it with room for `num_steps` steps per row.

        `tasks`: the split. `rows`: learners and environments per training task. `config`: the recorded configuration.
        `owner`: the run that records. Raises `PipelineError` if the histories there belong to another run."""
        self.folder = folder
        if not (folder / MANIFEST).exists():
            num_rows = len(tasks["train"]) * rows["num_learners"] * rows["num_envs"]
            self._create(spec, (num_rows, num_steps), tasks, rows, config, owner)
        self.manifest = read_manifest(folder)
        if owner and self.manifest["owner"]:
            check_owner(folder / MANIFEST, Identity(**self.manifest["owner"]), owner)
        self._columns = {name: np.load(folder / f"{name}.npy", mmap_mode="r+") for name in Rollout._fields}
        self._pending: list[Rollout] = []

    @property
    def num_steps(self) -> int:
        """Steps per row that the store has room for."""
        return self._columns["obs"].shape[1]

    def add(self, rollout: Rollout) -> None:
        """Keep `[T, rows]` transitions in memory; `commit` drops the steps beyond the end of the store."""
        columns = self.manifest["columns"]
        small = {name: getattr(rollout, name).to(getattr(torch, columns[name]["dtype"])) for name in Rollout._fields}
        self._pending.append(Rollout(**small))

    def commit(self, start: int) -> None:
        """Write the transitions added since the last commit as the steps from `start` on, and make them durable."""
        if self._pending and start < self.num_steps:
            if start < self.manifest["committed"]:
                self.keep(start)
            checksums: dict[str, str] = {}
            end = min(start + sum(len(rollout.obs) for rollout in self._pending), self.num_steps)
            for name, column in self._columns.items():
                block = torch.cat([getattr(rollout, name) for rollout in self._pending]).transpose(0, 1).cpu().numpy()
                column[:, start:end] = block[:, : end - start]
                checksums[name] = block_checksum(block[:, : end - start])
                try:
                    column.flush()
                except OSError as error:
                    raise PipelineError(f"cannot write {self.folder / name}.npy: {error.strerror}") from error
            self.manifest["blocks"].append({"start": start, "end": end, "sha256": checksums})
            self.manifest["committed"] = end
            write_json(self.folder / MANIFEST, self.manifest)
        self._pending = []

    def keep(self, steps: int) -> None:
        """Continue after the first `steps`; later committed steps will be written again. Raises
        `DamagedHistoriesError` if the kept steps are not what was committed."""
        self._check(steps)
        if steps >= self.manifest["committed"]:
            return
        blocks = [block for block in self.manifest["blocks"] if block["end"] <= steps]
        start = blocks[-1]["end"] if blocks else 0
        if start < steps:  # inside a block, or in a store that was complete
            checksums = {name: block_checksum(column[:, start:steps]) for name, column in self._columns.items()}
            blocks.append({"start": start, "end": steps, "sha256": checksums})
        self.manifest |= {"blocks": blocks, "committed": steps, "complete": False}
        for column in self.manifest["columns"].values():
            column["sha256"] = None

    def finish(self) -> None:
        """Mark the store as complete: checksums of columns replace those of blocks. Raises `DamagedHistoriesError`
        if the columns are not what was committed."""
        checksums = {name: sha256(self.folder / f"{name}.npy") for name in self._columns}
        self._check(self.num_steps)  # after the checksums were made, so they are of the committed steps
        for name, column in self.manifest["columns"].items():
            column["sha256"] = checksums[name]
        self.manifest |= {"blocks": [], "complete": True}
        write_json(self.folder / MANIFEST, self.manifest)

    def _check(self, steps: int) -> None:
        """Raise `DamagedHistoriesError` unless the blocks that begin before `steps` are what was committed."""
        if self.manifest["complete"]:
            manifests.check_columns(self.folder, self.manifest)
        for block in self.manifest["blocks"]:
            start, end = block["start"], block["end"]
            for name, column in self._columns.items():
                if start < steps and block_checksum(column[:, start:end]) != block["sha256"][name]:
                    raise DamagedHistoriesError(
                        f"{self.folder / name}.npy is damaged in the block of steps {start} to {end - 1}: its checksum "
                        "is not the one in the manifest; restore it, or remove the histories and the logs of this "
                        "run to record it again"
                    )

    def _create(
        self, spec: EnvSpec, shape: tuple[int, int], tasks: Json, rows: Json, config: Json, owner: Identity | None
    ) -> None:
        """Reserve the disk space of every column, then write the manifest."""
        columns: Json = {}
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, dtype in column_dtypes(spec).items():
            path, whole = self.folder / f"{name}.npy", (*shape, *(spec.obs_shape if name in OBSERVATIONS else ()))
            try:
                np.lib.format.open_memmap(path, "w+", np.dtype(dtype), whole, version=(2, 0))
            except OSError as error:
                raise PipelineError(f"cannot write {path}: {error.strerror}") from error
            reserve(path, path.stat().st_size)
            columns[name] = {"dtype": dtype, "shape": list(whole), "sha256": None}
        versions = {name: importlib.metadata.version(name) for name in ("torch", "numpy", "gymnasium")}
        manifest = {
            "schema_version": manifests.SCHEMA_VERSION,
            "columns": columns,
            "tasks": tasks,
            "rows": rows,
            "env": spec._asdict(),
            "config": config,
            "versions": {"python": platform.python_version()} | versions,
            "committed": 0,
            "complete": False,
            "blocks": list[Json](),
            "owner": owner and owner._asdict(),
        }
        write_json(self.folder / MANIFEST, manifest)
