"""Parts of a stage-one run that are saved with it: its identity, positions of streams, and running averages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from icrl.config.options import refuse
from icrl.contracts import ConfigError, Json, Rollout
from icrl.data.history_store import HistoryWriter
from icrl.envs.core import State
from icrl.envs.rollout import OpenEpisodes, Streams, finished_episodes, numbered
from icrl.runs import checkpoint
from icrl.runs.files import Identity, check_same, fits
from icrl.sources.pace import unrolled
from icrl.spaces import EnvSpec

if TYPE_CHECKING:
    from icrl.config.root import Config


MOST_PENDING = 100  # unrolls in memory before they are added to the averages
_MEASURES = ("return", "success", "episode_length")


class Part(NamedTuple):
    """The training tasks that a run of stage one is about: the whole, or a block of them. Their learners, streams and
    seeds are those that they have in a run of all."""

    index: int = 0
    count: int = 1

    def block(self, num_tasks: int) -> slice:
        """Its training tasks among `num_tasks`."""
        return slice(num_tasks * self.index // self.count, num_tasks * (self.index + 1) // self.count)


WHOLE = Part()


class EpisodeStatistics:
    """Return, success and length of the latest `window` episodes of every stream, averaged over the streams of each
    learner."""

    def __init__(self, spec: EnvSpec, num_learners: int, num_envs: int, window: int = 10) -> None:
        num_streams, self._num_learners, self._spec = num_learners * num_envs, num_learners, spec
        self._last = np.full((len(_MEASURES), num_streams, window), np.nan)
        self._count, self._open = np.zeros(num_streams, np.int64), OpenEpisodes.none(num_streams)
        self._pending: list[Rollout] = []

    def add(self, transitions: Rollout) -> None:
        """Add the episodes that end in `[T, B]` transitions; processing may wait until the next `summary`."""
        self._pending.append(transitions)
        if len(self._pending) >= MOST_PENDING:
            self._take_in()

    def summary(self) -> dict[str, np.ndarray]:
        """`return`, `success` and `episode_length` per learner, `[L]`; NaN if no episode has ended yet."""
        self._take_in()
        last = self._last.reshape(len(_MEASURES), self._num_learners, -1)
        ended = (~np.isnan(last[0])).sum(axis=-1)  # [L]
        means = np.where(ended > 0, np.nansum(last, axis=-1) / np.maximum(ended, 1), np.nan)
        return dict(zip(_MEASURES, means, strict=True))

    def state_dict(self) -> dict[str, Any]:
        self._take_in()
        arrays = (self._last, self._count, *self._open)
        return {"arrays": [torch.from_numpy(array.copy()) for array in arrays]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        last, self._count, *still_open = (array.cpu().numpy().copy() for array in state["arrays"])
        self._open, size, before = OpenEpisodes(*still_open), self._last.shape[-1], last.shape[-1]
        newest = self._count[:, None] - 1 - np.arange(min(size, before))  # numbers of episodes, in windows of any size
        stream, place = np.nonzero(newest >= 0)
        number = newest[stream, place]
        self._last[:] = np.nan
        self._last[:, stream, number % size] = last[:, stream, number % before]

    def _take_in(self) -> None:
        if not self._pending:
            return
        transitions = Rollout(*(torch.cat(column) for column in zip(*self._pending, strict=True)))
        self._pending.clear()
        episodes, self._open = finished_episodes(transitions, self._open, self._spec)
        slot = (self._count[episodes.stream] + numbered(episodes.stream)) % self._last.shape[-1]
        self._last[:, episodes.stream, slot] = (episodes.returns, episodes.success, episodes.length)
        np.add.at(self._count, episodes.stream, 1)


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
    if fits(before, {"config": dict, "inputs": {str: str}}):
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
