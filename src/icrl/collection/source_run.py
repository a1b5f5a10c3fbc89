"""Identity of a stage-one run, the checks before it resumes, and the position of its streams."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from icrl.contracts import ConfigError, Json
from icrl.data.history_store import HistoryWriter, checksum_of, read_manifest
from icrl.envs.core import State
from icrl.envs.rollout import Streams
from icrl.runs import checkpoint
from icrl.runs.files import fits
from icrl.runs.identity import Identity, check_same
from icrl.sources.noise_distillation import NoiseDistillationConfig, open_teacher
from icrl.sources.options import ReplayConfig
from icrl.sources.pace import unrolled

if TYPE_CHECKING:
    from icrl.config.root import Config


class Position:
    """Position of the streams in their episodes; every iteration replaces this part of a run state."""

    def __init__(self, streams: Streams[State, tuple[()]]) -> None:
        self.streams = streams

    def state_dict(self) -> dict[str, Any]:
        state, step, carry = self.streams
        return {"state": state._asdict(), "step": step._asdict(), "carry": _plain(carry)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        now = self.streams
        kept, step = type(now.state)(**state["state"]), type(now.step)(**state["step"])
        self.streams = Streams(kept, step, _like(now.carry, state["carry"]))


def compared(config: Config) -> tuple[str, ...]:
    """Groups of options that must not change when a run resumes."""
    groups = ("seed", "env", "tasks", "source")
    return (*groups, "evals") if config.source.evaluate else groups


def inputs_of(config: Config, device: torch.device) -> Json:
    """Checksums of the teacher and the offline histories, by the option that names them. Raises `ConfigError` if one is
    missing."""
    source, inputs = config.source, dict[str, str]()
    if isinstance(source, NoiseDistillationConfig) and source.teacher != "none":
        inputs["source.teacher"] = open_teacher(config, source.teacher, device)[1]["state_sha256"]
    if isinstance(source, ReplayConfig) and source.has_offline:
        folder = config.folder("histories").parent / source.offline_buffer_dir
        inputs["source.offline_buffer_dir"] = checksum_of(read_manifest(folder))
    return inputs


def check_continues(config: Config, folder: Path, saved: Json, owner: Identity, inputs: Json) -> None:
    """Raise `ConfigError` unless the run `owner`, with `config` and `inputs`, may resume from the checkpoint in
    `folder` whose sidecar is `saved`; `PipelineError` if that belongs to another program or run."""
    before = saved["description"]
    if fits(before, {"config": dict, "inputs": {str: str}}):
        check_same(config, before["config"], compared(config), str(folder))
        if other := sorted(key for key in inputs if inputs[key] != before["inputs"].get(key)):
            raise ConfigError(
                f"{folder} was made with another {' and '.join(other)} than now exists under that name: restore "
                "it, or give another name="
            )
    checkpoint.check_run(folder, saved, owner)


def align_writer(config: Config, writer: HistoryWriter, folder: Path, first: int | None) -> None:
    """Make `writer` continue at iteration `first`, that of the newest checkpoint in `folder` (None: there is none).
    Raises `ConfigError` if one of the two is missing."""
    if first is None and writer.manifest["complete"]:
        raise ConfigError(
            f"the histories in {writer.folder} are complete, but the agents that made them are missing from {folder}: "
            "give another name=, or remove the histories too"
        )
    steps = min(unrolled(config.source, first or 0), writer.num_steps)
    if first is not None and writer.manifest["committed"] < steps:
        raise ConfigError(f"{folder} belongs to histories missing from {writer.folder}: restore them, or remove it")
    writer.keep(steps)


def _plain(carry: Any) -> Any:
    """Carry (tensors in tuples) as lists, because a checkpoint must not contain classes."""
    return [_plain(part) for part in carry] if isinstance(carry, tuple) else carry


def _like(carry: Any, saved: Any) -> Any:
    """Saved carry with the structure of `carry`."""
    if not isinstance(carry, tuple):
        return saved
    parts = [_like(part, saved_part) for part, saved_part in zip(carry, saved, strict=True)]
    return type(carry)(*parts) if parts else ()
