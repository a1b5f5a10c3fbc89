"""Checkpoint files, atomic, so that the newest complete state is found after any crash; and their schedule, `Interval`.

`<kind>-<step>.pt` holds plain dicts of tensors and numbers. Its sidecar `<kind>-<step>.json` holds kind, step, checksum
and a description, which names the owner by `program` and `run`. The sidecar is written last, so a state without one is
incomplete. Loading is `weights_only`.
"""

import io
import math
import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any, Self

import torch
from pydantic import model_validator

from icrl.config.options import NO_EFFECT, Options, option, refuse_both
from icrl.contracts import Json, PipelineError
from icrl.runs.files import Identity, check_owner, read_json, read_owned, sha256, write_atomically, write_json
from icrl.runs.processes import say

FINISHED = "finished.json"
_SIDECAR = {"kind": str, "step": int, "state_sha256": str, "description": dict}


class SavingConfig(Options):
    """Options of the checkpoints of every program."""

    num_checkpoints: int = option(10, "checkpoints, evenly spread (0: use checkpoint_interval)", ge=0, may_change=True)
    checkpoint_interval: int = option(0, "iterations per checkpoint (both 0: one at the end)", ge=0, may_change=True)
    keep_last: int = option(2, "newest checkpoints to keep", ge=1, may_change=True)

    former = {"on_crash": NO_EFFECT}

    @model_validator(mode="after")
    def _check(self) -> Self:
        number, interval = self.num_checkpoints, self.checkpoint_interval
        refuse_both("checkpoints", ("num_checkpoints", number), ("checkpoint_interval", interval))
        return self


class CheckpointsConfig(SavingConfig):
    snapshot_interval: int = option(
        0,
        "training windows between snapshots, which are kept and can be evaluated (0: none)",
        ge=0,
        may_change=True,
        stages="2, finetune",
    )


class Interval:
    """Schedule of an event: `number` times in a run of `total` iterations, or else every `every` of them (0: never);
    with `end` also in the last iteration.

    Checkpoints, evaluations, summaries and snapshots only call `due`, so another rule (such as once every few minutes)
    changes this class alone."""

    def __init__(self, number: int, every: int, total: int, *, end: bool = False) -> None:
        self._length, self._total, self._end = interval_of(number, every, total), total, end

    def due(self, iteration: int) -> bool:
        if self._end and iteration == self._total:
            return True
        return iteration > 0 and is_due(iteration, self._length)


def interval_of(number: int, interval: int, iterations: int) -> int:
    """Iterations between events that happen `number` times, or every `interval`; 0: never."""
    return math.ceil(iterations / number) if number else interval


def is_due(iteration: int, interval: int) -> bool:
    return bool(interval) and iteration % interval == 0


class DamagedCheckpointError(PipelineError):
    """A checkpoint whose content differs from what was saved."""


def save(folder: Path, kind: str, step: int, state: dict[str, Any], description: Json, keep: int) -> None:
    """Write a checkpoint of `kind` (`last`, `best`, `pending`); keep it and the `keep - 1` before it."""
    path, buffer = folder / f"{kind}-{step:09d}.pt", io.BytesIO()
    torch.save(state, buffer)
    write_atomically(path, buffer.getvalue())
    about = {"kind": kind, "step": step, "state_sha256": sha256(path), "description": description}
    write_json(path.with_suffix(".json"), about)
    stems = sorted({_stem(file) for file in folder.glob(f"{kind}-*")}, reverse=True)
    newest = stems.index(path.stem)  # later ones are damaged: otherwise the run would have resumed from them
    prune(folder, kind, stems[newest : newest + keep])


def prune(folder: Path, kind: str, kept: Collection[str]) -> None:
    """Delete all checkpoints of `kind`, half-written ones too, except those named in `kept` (`<kind>-<step>`)."""
    for file in sorted(folder.glob(f"{kind}-*")):  # a .json sorts before its .pt: the sidecar goes first
        if _stem(file) not in kept:
            file.unlink()


def _stem(file: Path) -> str:
    return file.name.split(".")[0]


def sidecars(folder: Path, kind: str) -> list[Path]:
    """JSON sidecars of the checkpoints of `kind`, newest first."""
    files = [file for file in folder.glob(f"{kind}-*.json") if re.fullmatch(r"\d{9,}", file.stem.rpartition("-")[2])]
    return sorted(files, key=step_of, reverse=True)


def by_step(folder: Path) -> dict[int, Path]:
    """Sidecars of all checkpoints in `folder` whose models can be used, by step; those of `last` hold the most."""
    return {step_of(sidecar): sidecar for kind in ("best", "snapshot", "last") for sidecar in sidecars(folder, kind)}


def step_of(sidecar: Path) -> int:
    return int(sidecar.stem.rpartition("-")[2])


def load_newest(folder: Path, kind: str, device: torch.device) -> tuple[dict[str, Any], Json] | None:
    """State and sidecar of the newest intact checkpoint of `kind`; None if there is none. Damaged checkpoints are
    skipped. Raises `DamagedCheckpointError` if all are damaged."""
    damage = None
    for sidecar in sidecars(folder, kind):
        try:
            state = load(sidecar, device)
            if damage:
                say(f"skipped, using {sidecar.stem} instead: {damage}", file=sys.stderr)
            return state
        except DamagedCheckpointError as error:
            damage = error
    if damage:
        raise damage
    return None


def load(sidecar: Path, device: torch.device) -> tuple[dict[str, Any], Json]:
    """State and sidecar of one checkpoint, by the path of its sidecar."""
    about, path = check(sidecar), sidecar.with_suffix(".pt")
    try:
        return torch.load(path, map_location=device, weights_only=True), about
    except Exception as error:  # a foreign file may make the parser raise anything
        raise _damaged(path, f"cannot be read ({type(error).__name__});") from error


def check(sidecar: Path) -> Json:
    """Content of a sidecar. Raises `DamagedCheckpointError` if the state beside it was damaged, replaced or renamed."""
    path = sidecar.with_suffix(".pt")
    try:
        about = read_json(sidecar, _SIDECAR)
        whole = path.exists() and sha256(path) == about["state_sha256"]
    except (PipelineError, OSError) as error:
        raise _damaged(path, f"cannot be read: {error};") from error
    if not whole:
        raise _damaged(path, "is missing or damaged;")
    if sidecar.stem != (name := f"{about['kind']}-{about['step']:09d}"):
        raise _damaged(path, f"was written as {name}.pt; give it and its .json that name back, or")
    return about


def _damaged(path: Path, fault: str) -> DamagedCheckpointError:
    return DamagedCheckpointError(f"{path} {fault} delete it and its .json to continue")


def open_finished(folder: Path, kind: str, program: str, device: torch.device) -> tuple[dict[str, Any], Json] | None:
    """State and sidecar of the newest checkpoint of `kind` of a finished run of `program`; None if there is none.
    Raises `PipelineError` if one of the two files belongs to another run, or the final checkpoint is missing."""
    opened, finished = load_newest(folder, kind, device), folder / FINISHED
    if opened is None or not finished.exists():
        return None
    _, owner, step = read_owned(finished, {})
    check_run(folder, opened[1], Identity(program, owner.run))
    check_owner(finished, owner, Identity(program, owner.run))
    if kind == "last":
        check_end(finished, step, opened[1]["step"])
    return opened


def check_run(folder: Path, about: Json, expected: Identity) -> None:
    """Raise `PipelineError` unless the checkpoint in `folder` with the sidecar `about` is from the `expected` run."""
    check_owner(sidecar_of(folder, about), Identity.of(about["description"]), expected)


def sidecar_of(folder: Path, about: Json) -> Path:
    """Path of the sidecar in `folder` with the content `about`."""
    return folder / f"{about['kind']}-{about['step']:09d}.json"


def check_end(finished: Path, step: int, newest: int) -> None:
    """Raise `PipelineError` unless the `newest` checkpoint is of the `step` at which `finished` says the run ended."""
    if step != newest:
        raise PipelineError(
            f"{finished} says that the run ended at step {step}, but the newest intact checkpoint beside it is of step "
            f"{newest}: restore the missing one, or remove {finished.name} to resume from there with the same command"
        )
