"""`manifest.json` of a history store: its form, its versions, and the checks of the files that it describes."""

import hashlib
from pathlib import Path

import numpy as np

from icrl.contracts import SPEC_FORM, ConfigError, Json, PipelineError, Rollout
from icrl.runs.files import digest, fits, read_json, sha256

SCHEMA_VERSION = 3
MANIFEST = "manifest.json"
_ADDED: Json = {  # options that were added later, with the values that describe older histories
    "tasks": {"split": "random", "held_out": []},
    "source": {"num_workers": 0},
}
_FORM = {
    "schema_version": int,
    "columns": {name: {"dtype": str, "shape": [int], "sha256": (str, type(None))} for name in Rollout._fields},
    "tasks": {"all": [[int]], "train": [int], "held_out": [int]},
    "rows": {"num_learners": int, "num_envs": int},
    "env": SPEC_FORM,
    "config": dict,
    "versions": {str: str},
    "committed": int,
    "complete": bool,
    "blocks": [{"start": int, "end": int, "sha256": {name: str for name in Rollout._fields}}],
    "owner": ({"program": str, "run": str}, type(None)),
}


class DamagedHistoriesError(PipelineError):
    """A history store has missing, cut, changed or foreign files."""


def read_manifest(folder: Path) -> Json:
    """Read the manifest in `folder`, upgrade it to this version, and check its form and each column's file size.

    Raises `ConfigError` if there are no histories, `DamagedHistoriesError` if a file does not match."""
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
            found = np.lib.format.open_memmap(folder / f"{name}.npy", mode="r")  # arrays only, never pickles
        except Exception as error:  # NumPy's header parser raises errors of many types
            raise DamagedHistoriesError(f"{folder / name}.npy cannot be read: {error}") from error
        holds = {"dtype": str(found.dtype), "shape": list(found.shape)}
        if column != holds | {"sha256": column["sha256"]}:
            raise DamagedHistoriesError(f"{folder / name}.npy holds {holds}, the manifest says {column}")
    return manifest


def upgrade(manifest: Json, path: Path) -> None:
    """Convert a manifest of versions 0.6 and 0.7, which had no block checksums, no owner and fewer options."""
    if manifest.get("schema_version") != 2:
        return
    if not manifest.get("complete"):
        raise DamagedHistoriesError(
            f"{path} was started by version 0.7 or older and is not complete, so this version cannot check "
            "it. Remove the histories and the logs of this run to record it again"
        )
    manifest |= {"schema_version": SCHEMA_VERSION, "blocks": [], "owner": None}
    if isinstance(config := manifest.get("config"), dict):
        for group, added in _ADDED.items():
            if isinstance(options := config.get(group), dict):
                config[group] = added | options


def check_form(manifest: Json, path: Path) -> None:
    """Raise `DamagedHistoriesError` unless the manifest has this version's form, the row count matches its learners
    and environments, and its blocks are contiguous up to the last committed step."""
    if manifest.get("schema_version") != SCHEMA_VERSION or manifest.keys() != _FORM.keys() or not fits(manifest, _FORM):
        raise DamagedHistoriesError(f"{path} is not a manifest of schema version {SCHEMA_VERSION}")
    tasks, rows, blocks = manifest["tasks"], manifest["rows"], manifest["blocks"]
    num_rows = len(tasks["train"]) * rows["num_learners"] * rows["num_envs"]
    if any(column["shape"][:1] != [num_rows] for column in manifest["columns"].values()):
        raise DamagedHistoriesError(f"{path}: its tasks, learners and environments make {num_rows} rows, not its shape")
    last = 0 if manifest["complete"] else manifest["committed"]
    if [0, *(block["end"] for block in blocks)] != [*(block["start"] for block in blocks), last]:
        raise DamagedHistoriesError(f"{path}: its blocks do not cover the {last} committed steps one after another")


def check_columns(folder: Path, manifest: Json) -> None:
    """Raise `DamagedHistoriesError` unless each column file has the checksum in the manifest."""
    for name, column in manifest["columns"].items():
        if sha256(folder / f"{name}.npy") != column["sha256"]:
            raise DamagedHistoriesError(f"{folder / name}.npy is damaged: its checksum is not the one in the manifest")


def block_checksum(block: np.ndarray) -> str:
    """SHA-256 of a part of a column."""
    return hashlib.sha256(np.ascontiguousarray(block).data).hexdigest()


def checksum_of(manifest: Json) -> str:
    """Checksum of the tasks, the rows and every recorded step, independent of folder and package versions."""
    return digest({key: manifest[key] for key in ("columns", "tasks", "rows")})
