"""Checkpoints: a whole state or none, found again after any crash.

`<kind>-<step>.pt` holds plain dicts of tensors and numbers, `<kind>-<step>.json` its checksum and description. The
sidecar is written last, so a state without one was never finished. Nothing is unpickled beyond `weights_only`.
"""

import io
from pathlib import Path
from typing import Any

import torch

from src.contracts import Json, PipelineError
from src.files import read_json, sha256, write_atomically, write_json


class DamagedCheckpointError(PipelineError):
    """A checkpoint that is not what was written."""


def save(folder: Path, kind: str, step: int, state: dict[str, Any], description: Json, keep: int) -> None:
    """Write a checkpoint of `kind` (`last`, `best`) and drop all but the newest `keep` of that kind."""
    path = folder / f"{kind}-{step:09d}.pt"
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomically(path, buffer.getvalue())
    write_json(path.with_suffix(".json"), {"step": step, "sha256": sha256(path), "description": description})
    for old in _sidecars(folder, kind)[keep:]:
        old.unlink()  # first the sidecar: without it the state counts as unfinished
        old.with_suffix(".pt").unlink(missing_ok=True)


def load_newest(folder: Path, kind: str, device: torch.device) -> tuple[dict[str, Any], Json] | None:
    """State and sidecar (`step`, `sha256`, `description`) of the newest whole checkpoint of `kind`; None where there
    is none.

    Damaged ones are passed over for an older good one; where all are damaged, `DamagedCheckpointError`."""
    damage = None
    for sidecar in _sidecars(folder, kind):
        try:
            return load(sidecar, device)
        except DamagedCheckpointError as error:
            damage = error
    if damage:
        raise damage
    return None


def load(sidecar: Path, device: torch.device) -> tuple[dict[str, Any], Json]:
    """State of one checkpoint, by its JSON sidecar, and what that says."""
    path = sidecar.with_suffix(".pt")
    try:
        written = read_json(sidecar)
        if not path.exists() or sha256(path) != written["sha256"]:
            raise DamagedCheckpointError(f"{path} is missing or not what was written; delete it and its .json to go on")
        return torch.load(path, map_location=device, weights_only=True), written
    except DamagedCheckpointError:
        raise
    except Exception as error:  # whatever a foreign file makes the parsers raise
        raise DamagedCheckpointError(f"{path} cannot be read: {error}") from error


def _sidecars(folder: Path, kind: str) -> list[Path]:
    return sorted(folder.glob(f"{kind}-*.json"), reverse=True)
