"""Parts of a run of stage one that are saved with it: its identity, and the positions of its streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from icrl.app.root import Config
from icrl.config.options import refuse
from icrl.contracts import ConfigError, Json
from icrl.data.history_store import HistoryWriter
from icrl.envs.core import State
from icrl.envs.rollout import Streams
from icrl.runs import checkpoint
from icrl.runs.files import Identity, check_same, has_form
from icrl.sources.pace import unrolled


class Part(NamedTuple):
    """The training tasks that a run of stage one is about: the whole, or a block of them. Their learners, streams and
    seeds are those that they have in a run of all."""

    index: int = 0
    count: int = 1

    def block(self, num_tasks: int) -> slice:
        """Its training tasks among `num_tasks`."""
        return slice(num_tasks * self.index // self.count, num_tasks * (self.index + 1) // self.count)


WHOLE = Part()


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
    return ("seed", "env", "tasks", "source", *(["evals"] if config.source.evaluate else []))


def inputs_of(config: Config, part: Part = WHOLE) -> Json:
    """Checksums of what the source reads, by the option that names it, and the `part`. Raises `ConfigError` if one is
    missing."""
    inputs = config.source.inputs(config)
    if part.count > 1:
        inputs["shard"] = f"{part.index} of {part.count}"
    return inputs


def check_continues(config: Config, folder: Path, saved: Json, owner: Identity, inputs: Json) -> None:
    """Raise `ConfigError` unless the run `owner`, with `config` and `inputs`, may resume from the checkpoint in
    `folder` whose sidecar is `saved`; `PipelineError` if that belongs to another program or run."""
    before = saved["description"]
    if has_form(before, {"config": dict, "inputs": {str: str}}):
        check_same(config, before["config"], compared(config), str(folder))
        if other := sorted(key for key in inputs if inputs[key] != before["inputs"].get(key)):
            raise ConfigError(
                f"{folder} was made with another {' and '.join(other)}: restore it, or give another name="
            )
    checkpoint.check_run(folder, saved, owner)


def align_writer(config: Config, writer: HistoryWriter, folder: Path, first: int | None) -> None:
    """Make `writer` continue at iteration `first`, that of the newest checkpoint in `folder` (None: there is none).
    Raises `ConfigError` if one of the two is missing."""
    steps, cure = min(unrolled(config.source, first or 0), writer.num_steps), "restore them, or remove these too"
    lost = first is None and writer.manifest["complete"]
    refuse(lost, f"the agents of the complete histories in {writer.folder} are missing from {folder}: {cure}")
    refuse(writer.manifest["committed"] < steps, f"{folder} belongs to histories missing from {writer.folder}: {cure}")
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
