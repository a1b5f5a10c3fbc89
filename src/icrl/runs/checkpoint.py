"""Checkpoint files, atomic, so that the newest complete state is found after any crash; and their schedule, `Interval`.

`<kind>-<step>.pt` holds plain dicts of tensors and numbers. Its sidecar `<kind>-<step>.json` holds kind, step, checksum
and a description, which names the owner by `program` and `run`. The sidecar is written last, so a state without one is
incomplete. Loading is `weights_only`.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any, Self

import torch
from pydantic import model_validator
from torch import nn

from icrl.config.modules import command_of
from icrl.config.options import NO_EFFECT, Options, option, quoted, refuse, refuse_both
from icrl.contracts import ConfigError, Json, PipelineError
from icrl.runs import files
from icrl.runs.processes import say
from icrl.spaces import SPEC_FORM, EnvSpec

FINISHED = "finished.json"
_SIDECAR = {"kind": str, "step": int, "state_sha256": str, "description": dict}
_PARTS = ("train", "held_out", "development")
_DESCRIBED = {
    "config": {"env": {"name": str}, "tasks": dict, "data": dict, "model": dict, "optimizer": dict, "device": dict},
    "env": SPEC_FORM,
    "tasks": {"all": [[float]], **{part: [int] for part in _PARTS}},
    "histories": [{"name": str, "sha256": str}],
    "inputs": dict,
}


class CheckpointsConfig(Options):
    """Options of the checkpoints of every program."""

    num_checkpoints: int = option(10, "checkpoints, evenly spread (0: use checkpoint_interval)", ge=0, may_change=True)
    checkpoint_interval: int = option(0, "iterations per checkpoint (both 0: one at the end)", ge=0, may_change=True)
    keep_last: int = option(2, "newest checkpoints to keep", ge=1, may_change=True)
    snapshot_interval: int = option(
        0, "training windows between snapshots, which are all kept (0: none)", ge=0, may_change=True, stages="2, 3"
    )

    former = {"on_crash": NO_EFFECT}

    @model_validator(mode="after")
    def _check(self) -> Self:
        number, interval = self.num_checkpoints, self.checkpoint_interval
        refuse_both("checkpoints", num_checkpoints=number, checkpoint_interval=interval)
        return self


class Interval:
    """Schedule of an event: `number` times in a run of `total` iterations, evenly spread up to the last one, or else
    every `every` of them (0: never); with `end` also in the last iteration.

    Checkpoints, evaluations, summaries and snapshots only call `due`, so another rule changes this class alone."""

    def __init__(self, number: int, every: int, total: int, *, end: bool = False) -> None:
        self._times, self._length = (number, total) if number else (1, every)  # so many times in each `length`
        self._total, self._end = total, end

    def due(self, iteration: int) -> bool:
        if self._end and iteration == self._total:
            return True
        return iteration > 0 and self._length > 0 and iteration * self._times % self._length < self._times


class DamagedCheckpointError(PipelineError):
    """A checkpoint whose content differs from what was saved."""


def save(folder: Path, kind: str, step: int, state: dict[str, Any], description: Json, keep: int) -> None:
    """Write a checkpoint of `kind` (`last`, `best`, `snapshot`, ...); keep it and the `keep - 1` before it."""
    path, buffer = folder / f"{kind}-{step:09d}.pt", io.BytesIO()
    torch.save(state, buffer)
    files.write_atomically(path, buffer.getvalue())
    about = {"kind": kind, "step": step, "state_sha256": files.sha256(path), "description": description}
    files.write_json(path.with_suffix(".json"), about)
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
    found = [file for file in folder.glob(f"{kind}-*.json") if re.fullmatch(r"\d{9,}", file.stem.rpartition("-")[2])]
    return sorted(found, key=saved_step, reverse=True)


def saved_step(sidecar: Path) -> int:
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
        about = files.read_json(sidecar, _SIDECAR)
        whole = path.exists() and files.sha256(path) == about["state_sha256"]
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
    _, owner, step = files.read_owned(finished, {})
    check_run(folder, opened[1], files.Identity(program, owner.run))
    files.check_owner(finished, owner, files.Identity(program, owner.run))
    if kind == "last":
        check_end(finished, step, opened[1]["step"])
    return opened


def check_run(folder: Path, about: Json, expected: files.Identity) -> None:
    """Raise `PipelineError` unless the checkpoint in `folder` with the sidecar `about` is from the `expected` run."""
    files.check_owner(sidecar_of(folder, about), files.Identity.of(about["description"]), expected)


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


def open_model(folder: Path, kind: str | int, program: str, device: torch.device) -> tuple[dict[str, Any], Json]:
    """State and sidecar as by `open_finished`, or those of the update `kind`, if it is a number, also of a
    run that is not finished. Raises `ConfigError` if there are none."""
    if isinstance(kind, int):
        kinds = ("best", "snapshot", "last")  # of equal steps the last one counts, which holds the most
        there = {saved_step(one): one for name in kinds for one in sidecars(folder, name)}
        known = f"{folder} has checkpoints of the updates {', '.join(map(str, sorted(there))) or '(none)'}"
        refuse(kind not in there, f"evaluation.checkpoint={kind}: {known}; checkpoints.snapshot_interval keeps more")
        opened = load(there[kind], device)
        check_run(folder, opened[1], files.Identity(program, opened[1]["description"].get("run")))
    else:
        opened = open_finished(folder, kind, program, device)
    if opened is None and kind == "best" and (folder / FINISHED).exists():
        raise ConfigError(f"evaluation.checkpoint=best: {folder} has none; give last (trainer.evaluate=true makes one)")
    if opened is None:
        beside = ", ".join(finished.parent.name for finished in sorted(folder.parent.glob(f"*/{FINISHED}")))
        there = f"; finished beside it: {beside}" if beside else ""
        raise ConfigError(f"no finished training in {folder}: run `{command_of(program)}` with the same options{there}")
    check_described(opened[1]["description"], folder)
    if not isinstance(opened[0], dict) or not isinstance(opened[0].get("model"), dict):
        raise PipelineError(f"a checkpoint in {folder} holds no model: another program wrote it")
    return opened


def check_described(described: Json, folder: Path) -> None:
    """Raise `PipelineError` unless a checkpoint in `folder` records the options of its model."""
    if not files.has_form(described, _DESCRIBED):
        raise PipelineError(f"a checkpoint in {folder} lacks the options of its model: another version wrote it")
    with files.content_of(folder, DamagedCheckpointError):
        json.dumps(described["env"], allow_nan=False)
        EnvSpec.of(described["env"])
    tasks = described["tasks"]
    if not all(0 <= task < len(tasks["all"]) for part in _PARTS for task in tasks[part]):
        raise PipelineError(f"a checkpoint in {folder} names tasks that its world does not have: restore it")


def check_weights(module: nn.Module, weights: Any) -> None:
    """Raise `ConfigError` unless `weights` has a finite tensor of the right shape for each parameter of `module`."""
    needed, given = module.state_dict(), weights if isinstance(weights, dict) else {}
    for name in sorted(needed.keys() | given.keys(), key=str):
        one, like = given.get(name), needed.get(name)
        if not isinstance(one, torch.Tensor) or like is None or one.shape != like.shape or one.layout != torch.strided:
            raise ConfigError(f"the weights do not fit the options: {quoted(name)}")
        refuse(not one.isfinite().all(), f"the weights are not finite: {name}")
