"""Checkpoints: a whole state or none, found again after any crash.

`<kind>-<step>.pt` holds plain dicts of tensors and numbers, `<kind>-<step>.json` its checksum and description. The
sidecar is written last, so a state without one was never finished. Nothing is unpickled beyond `weights_only`.
"""

import io
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from src.contracts import Json, PipelineError
from src.files import read_json, sha256, write_atomically, write_json

_SIDECAR_KEYS = {"step", "state_sha256", "description"}


class DamagedCheckpointError(PipelineError):
    """A checkpoint that is not what was written."""


def save(folder: Path, kind: str, step: int, state: dict[str, Any], description: Json, keep: int) -> None:
    """Write a checkpoint of `kind` (`last`, `best`, `pending`) and drop all but it and the `keep - 1` before it."""
    path = folder / f"{kind}-{step:09d}.pt"
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomically(path, buffer.getvalue())
    write_json(path.with_suffix(".json"), {"step": step, "state_sha256": sha256(path), "description": description})
    stems = sorted({_stem(file) for file in folder.glob(f"{kind}-*")}, reverse=True)
    newest = stems.index(path.stem)  # a later one is damaged, or this run would have gone on from it
    prune(folder, kind, stems[newest : newest + keep])


def prune(folder: Path, kind: str, kept: Collection[str]) -> None:
    """Delete all checkpoints of `kind`, half-written ones too, but those named in `kept` (`<kind>-<step>`)."""
    for file in sorted(folder.glob(f"{kind}-*")):  # with a .json before its .pt: first goes the sidecar, then the state
        if _stem(file) not in kept:
            file.unlink()


def sidecars(folder: Path, kind: str) -> list[Path]:
    """JSON sidecars of the checkpoints of `kind`, the newest first."""
    return sorted(folder.glob(f"{kind}-*.json"), reverse=True)


def load_newest(folder: Path, kind: str, device: torch.device) -> tuple[dict[str, Any], Json] | None:
    """State and sidecar (`step`, `state_sha256`, `description`) of the newest whole checkpoint of `kind`, None where
    there is none.

    Damaged ones are passed over for an older good one; where all are damaged, `DamagedCheckpointError`."""
    damage = None
    for sidecar in sidecars(folder, kind):
        try:
            found = load(sidecar, device)
        except DamagedCheckpointError as error:
            damage = error
            continue
        if damage:
            tqdm.write(f"passed over for {sidecar.stem}: {damage}", file=sys.stderr)
        return found
    if damage:
        raise damage
    return None


def load(sidecar: Path, device: torch.device) -> tuple[dict[str, Any], Json]:
    """State of one checkpoint, by its JSON sidecar, and what that says."""
    path = sidecar.with_suffix(".pt")
    try:
        written = read_json(sidecar)
        if set(written) == _SIDECAR_KEYS and path.exists() and sha256(path) == written["state_sha256"]:
            return torch.load(path, map_location=device, weights_only=True), written
        reason = "is missing or not what was written"
    except Exception as error:  # whatever a foreign file makes the parsers raise
        reason = f"cannot be read ({type(error).__name__})"
    raise DamagedCheckpointError(f"{path} {reason}; delete it and its .json to go on")


def _stem(file: Path) -> str:
    return file.name.split(".")[0]
