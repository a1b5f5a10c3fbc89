"""What `manifest.json` of histories says, and whether it is whole: form, counts, checksums of blocks, whose it is."""

from pathlib import Path

from icrl.contracts import SPEC_FORM, Json, PipelineError, Rollout
from icrl.runs.files import digest, fits
from icrl.runs.identity import Identity, check_owner

SCHEMA_VERSION = 3
MANIFEST = "manifest.json"
_ADDED: Json = {  # options that came later, with the values that say what was done before
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
    """Histories that are not whole: missing, cut, changed or foreign files."""


def upgrade(manifest: Json, path: Path) -> None:
    """Bring a manifest of an older version to this one: 0.6 and 0.7 had no checksums of blocks, named no
    run, and had fewer options."""
    if manifest.get("schema_version") != 2:
        return
    if not manifest.get("complete"):
        raise DamagedHistoriesError(
            f"{path} was begun by version 0.7 or an older one, and is not complete: this version cannot check what is "
            "there. Remove the histories and the logs of this run to record it anew"
        )
    manifest |= {"schema_version": SCHEMA_VERSION, "blocks": [], "owner": None}
    if isinstance(config := manifest.get("config"), dict):
        for group, added in _ADDED.items():
            if isinstance(options := config.get(group), dict):
                config[group] = added | options


def check_form(manifest: Json, path: Path) -> None:
    """Raise `DamagedHistoriesError` unless this is a manifest of this version, with as many rows as learners and
    environments have, whose blocks follow each other up to the last committed step."""
    if manifest.get("schema_version") != SCHEMA_VERSION or manifest.keys() != _FORM.keys() or not fits(manifest, _FORM):
        raise DamagedHistoriesError(f"{path} is not a manifest of schema version {SCHEMA_VERSION}")
    tasks, rows, blocks = manifest["tasks"], manifest["rows"], manifest["blocks"]
    num_rows = len(tasks["train"]) * rows["num_learners"] * rows["num_envs"]
    if any(column["shape"][:1] != [num_rows] for column in manifest["columns"].values()):
        raise DamagedHistoriesError(f"{path} says {num_rows} rows of its tasks, learners and environments")
    last = 0 if manifest["complete"] else manifest["committed"]
    if [0, *(block["end"] for block in blocks)] != [*(block["start"] for block in blocks), last]:
        raise DamagedHistoriesError(f"{path} does not say of each committed step which block it is in")


def check_recorded(folder: Path, manifest: Json, owner: Identity) -> None:
    """Raise `PipelineError` unless the run `owner` recorded these histories, as far as they say who did."""
    if manifest["owner"]:
        check_owner(folder / MANIFEST, Identity(**manifest["owner"]), owner)


def checksum_of(manifest: Json) -> str:
    """Checksum of whose lives these are and of every step in them, wherever and with whatever versions they were
    recorded."""
    return digest({key: manifest[key] for key in ("columns", "tasks", "rows")})
