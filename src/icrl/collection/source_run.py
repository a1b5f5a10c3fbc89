"""Parts of a stage-one run that are saved with it: its identity, positions of streams, and running averages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from icrl.contracts import ConfigError, EnvSpec, Json, Rollout
from icrl.data.history_store import HistoryWriter, read_manifest
from icrl.data.manifests import checksum_of
from icrl.envs.core import State
from icrl.envs.episodes import OpenEpisodes, finished_episodes, numbered
from icrl.envs.rollout import Streams
from icrl.runs import checkpoint
from icrl.runs.files import fits
from icrl.runs.identity import Identity, check_same
from icrl.sources.noise_distillation import NoiseDistillationConfig, open_teacher
from icrl.sources.options import ReplayConfig
from icrl.sources.pace import unrolled

if TYPE_CHECKING:
    from icrl.config.root import Config


MOST_PENDING = 100  # unrolls in memory before they are added to the averages
_MEASURES = ("return", "success", "episode_length")


class EpisodeStatistics:
    """Return, success and length of the latest episodes of every stream, averaged over the streams of each learner."""

    def __init__(self, spec: EnvSpec, num_learners: int, num_envs: int, window: int = 10) -> None:
        num_streams = num_learners * num_envs
        self._spec = spec
        self._shape = (len(_MEASURES), num_learners, num_envs * window)
        self._last = np.full((len(_MEASURES), num_streams, window), np.nan)
        self._count = np.zeros(num_streams, np.int64)
        self._open = OpenEpisodes.none(num_streams)
        self._pending: list[Rollout] = []

    def add(self, transitions: Rollout) -> None:
        """Add the episodes that end in `[T, B]` transitions; processing may wait until the next `summary`."""
        self._pending.append(transitions)
        if len(self._pending) >= MOST_PENDING:
            self._take_in()

    def summary(self) -> dict[str, np.ndarray]:
        """`return`, `success` and `episode_length` per learner, `[L]`; NaN if no episode has ended yet."""
        self._take_in()
        last = self._last.reshape(self._shape)
        ended = (~np.isnan(last[0])).sum(axis=-1)  # [L]
        means = np.where(ended > 0, np.nansum(last, axis=-1) / np.maximum(ended, 1), np.nan)
        return dict(zip(_MEASURES, means, strict=True))

    def state_dict(self) -> dict[str, Any]:
        self._take_in()
        arrays = (self._last, self._count, *self._open)
        return {"arrays": [torch.from_numpy(array.copy()) for array in arrays]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        arrays = [array.cpu().numpy().copy() for array in state["arrays"]]
        self._last, self._count, *still_open = arrays
        self._open = OpenEpisodes(*still_open)

    def _take_in(self) -> None:
        if not self._pending:
            return
        transitions = Rollout(*(torch.cat(column) for column in zip(*self._pending, strict=True)))
        self._pending = []
        episodes, self._open = finished_episodes(transitions, self._open, self._spec)
        number = self._count[episodes.stream] + numbered(episodes.stream)
        slot = number % self._last.shape[-1]
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
