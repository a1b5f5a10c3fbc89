"""Trained models in checkpoints: opened, with the options that made them, and checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from icrl.config.modules import command_of
from icrl.config.options import quoted, refuse
from icrl.contracts import ConfigError, Json, PipelineError
from icrl.runs import checkpoint
from icrl.runs.files import Identity, content_of, has_form
from icrl.spaces import SPEC_FORM, EnvSpec

_PARTS = ("train", "held_out", "development")
_DESCRIBED = {
    "config": {"env": {"name": str}, "tasks": dict, "data": dict, "model": dict, "optimizer": dict, "device": dict},
    "env": SPEC_FORM,
    "tasks": {"all": [[float]], **{part: [int] for part in _PARTS}},
    "histories": [{"name": str, "sha256": str}],
    "inputs": dict,
}


def open_finished(folder: Path, kind: str | int, program: str, device: torch.device) -> tuple[dict[str, Any], Json]:
    """State and sidecar as by `checkpoint.open_finished`, or those of the update `kind`, if it is a number, also of a
    run that is not finished. Raises `ConfigError` if there are none."""
    if isinstance(kind, int):
        there = checkpoint.by_step(folder)
        known = f"{folder} has checkpoints of the updates {', '.join(map(str, sorted(there))) or '(none)'}"
        refuse(kind not in there, f"evaluation.checkpoint={kind}: {known}; checkpoints.snapshot_interval keeps more")
        opened = checkpoint.load(there[kind], device)
        checkpoint.check_run(folder, opened[1], Identity(program, opened[1]["description"].get("run")))
    else:
        opened = checkpoint.open_finished(folder, kind, program, device)
    if opened is None:
        raise ConfigError(f"no finished training in {folder}: run `{command_of(program)}` with the same options")
    check_described(opened[1]["description"], folder)
    if not isinstance(opened[0], dict) or not isinstance(opened[0].get("model"), dict):
        raise PipelineError(f"a checkpoint in {folder} holds no model: another program wrote it")
    return opened


def check_described(described: Json, folder: Path) -> None:
    """Raise `PipelineError` unless a checkpoint in `folder` records the options of its model."""
    if not has_form(described, _DESCRIBED):
        raise PipelineError(f"a checkpoint in {folder} lacks the options of its model: another version wrote it")
    with content_of(folder, checkpoint.DamagedCheckpointError):
        json.dumps(described["env"], allow_nan=False)
        EnvSpec.of(described["env"])
    tasks = described["tasks"]
    if not all(0 <= task < len(tasks["all"]) for part in _PARTS for task in tasks[part]):
        raise PipelineError(f"a checkpoint in {folder} names tasks that its world has not: restore it")


def check_weights(module: nn.Module, weights: Any) -> None:
    """Raise `ConfigError` unless `weights` has a finite tensor of the right shape for each parameter of `module`."""
    needed, given = module.state_dict(), weights if isinstance(weights, dict) else {}
    for name in sorted(needed.keys() | given.keys(), key=str):
        one, like = given.get(name), needed.get(name)
        if not isinstance(one, torch.Tensor) or like is None or one.shape != like.shape or one.layout != torch.strided:
            raise ConfigError(f"the weights do not fit the options: {quoted(name)}")
        refuse(not one.isfinite().all(), f"the weights are not finite: {name}")
