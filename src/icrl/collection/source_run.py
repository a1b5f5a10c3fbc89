"""Which run of stage one this is, and whether it may go on from what is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from icrl.collection.pace import unrolled
from icrl.config.training_schema import NoiseDistillationConfig, ReplayConfig
from icrl.contracts import ConfigError, Json
from icrl.data.history_store import HistoryWriter, read_manifest
from icrl.data.manifests import checksum_of
from icrl.runs import checkpoint
from icrl.runs.files import fits
from icrl.runs.identity import Identity, check_same
from icrl.sources.noise_distillation import open_teacher

if TYPE_CHECKING:
    from icrl.config.root import Config


def compared(config: Config) -> tuple[str, ...]:
    """Groups of options that a continued run must have as the run before it."""
    groups = ("seed", "env", "tasks", "source")
    return (*groups, "evals") if config.source.evaluate else groups


def inputs_of(config: Config, device: torch.device) -> Json:
    """Checksums of what the learners learn from beside the world, by the option that names it: a teacher, histories of
    others. Raises `ConfigError` where it is not there."""
    source, inputs = config.source, dict[str, str]()
    if isinstance(source, NoiseDistillationConfig) and source.teacher != "none":
        inputs["source.teacher"] = open_teacher(config, source.teacher, device)[1]["state_sha256"]
    if isinstance(source, ReplayConfig) and source.has_offline:
        folder = config.folder("histories").parent / source.offline_buffer_dir
        inputs["source.offline_buffer_dir"] = checksum_of(read_manifest(folder))
    return inputs


def check_continues(config: Config, folder: Path, saved: Json, owner: Identity, inputs: Json) -> None:
    """Raise `ConfigError` unless the run `owner`, with `config` and `inputs`, may go on from the checkpoint in `folder`
    whose sidecar is `saved`; `PipelineError` where that is of another program or run."""
    before = saved["description"]
    if fits(before, {"config": dict, "inputs": {str: str}}):
        check_same(config, before["config"], compared(config), str(folder))
        if other := sorted(key for key in inputs if inputs[key] != before["inputs"].get(key)):
            raise ConfigError(
                f"{folder} was made with another {' and '.join(other)} than there is now under that name: put that "
                "back, or give another name="
            )
    checkpoint.check_run(folder, saved, owner)


def go_on_together(config: Config, writer: HistoryWriter, folder: Path, first: int | None) -> None:
    """Let `writer` go on where the newest checkpoint in `folder`, of iteration `first`, does. Raises `ConfigError`
    where one of the two is gone."""
    if first is None and writer.manifest["complete"]:
        raise ConfigError(
            f"the histories in {writer.folder} are complete, and the agents that made them are gone from {folder}: "
            "give another name=, or remove the histories too"
        )
    steps = min(unrolled(config.source, first or 0), writer.num_steps)
    if first is not None and writer.manifest["committed"] < steps:
        raise ConfigError(f"{folder} belongs to histories that are gone from {writer.folder}: remove it too")
    writer.keep(steps)
