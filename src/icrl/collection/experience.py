"""Training samples for source agents: from the newest unroll, replay or recorded histories.

T steps, L learners, N environments of each, W windows per learner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from icrl.collection.experience import OfflineWindows
from icrl.collection.replay import Drawn, Replay, rollout_replay, shuffled
from icrl.config.options import replace
from icrl.config.schedules import Clock, make_schedule
from icrl.contracts import EnvSpec, Learned, Rollout, Sample
from icrl.randomness import mix
from icrl.sources.noise_distillation import NoiseDistillationConfig
from icrl.sources.options import ReplayConfig, SourceConfig
from icrl.sources.pace import batches_of_a_sweep, clock_of, own_windows, window_length

if TYPE_CHECKING:
    from icrl.config.root import Config

Columns = dict[str, Tensor]


class Experience:
    """Training samples of each iteration, with windows that are a function of (seed, iteration, update)."""

    def __init__(self, config: Config, spec: EnvSpec, tasks: Tensor, device: torch.device) -> None:
        """Samples for `source.num_learners` learners on each of `tasks` `[G, task_dim]`."""
        self.source = source = config.source
        self._seed, self._device = config.seed, device
        self._num_learners = len(tasks) * source.num_learners
        self._replay: Replay[Rollout] | None = None
        self._offline: OfflineWindows | None = None
        self._drawn: Drawn | None = None
        if isinstance(source, ReplayConfig):
            length = window_length(source, 1)
            self._offline_weight = make_schedule(source.offline_loss_weight)
            if source.replays:
                self._replay = rollout_replay(source, spec, self._num_learners, length, device)
            if source.has_offline:
                self._offline = OfflineWindows(config, source, tasks, length, device)

    def samples(
        self, iteration: int, transitions: Rollout, targets: Callable[[Rollout], Columns]
    ) -> Iterator[tuple[Clock, Sample]]:
        """Samples of `iteration` (from 1) with the new `transitions` `[T, L * N]`: one per update, each with its clock.
        Call `learned` after each update. `targets` is called once, if the whole unroll is used."""
        source = self.source
        if self._replay and len(transitions.obs):
            self._replay.add(transitions)
        now = clock_of(source, iteration - 1)
        num_updates = batches_of_a_sweep(source, iteration) * source.num_updates_per_train_iter
        parts: Iterable[Sample | None] = repeat(None, num_updates)
        if own_windows(source, iteration):
            parts = self._own(iteration, transitions, targets, now)
        for update, own in enumerate(parts):
            clock = now._replace(updates=now.updates + update)
            yield clock, self._with_offline(own, mix(self._key(iteration, update), 1), clock)

    def learned(self, clock: Clock, learned: Learned) -> None:
        """Record the result of the update on the last sample."""
        if self._replay and self._drawn and learned.td_error is not None:
            td_error = learned.td_error.unflatten(0, (self._num_learners, -1))  # [L, W], own windows come first
            self._replay.set_priorities(self._drawn.where, td_error[:, : self._drawn.where.shape[1]], clock)
            self._drawn = None

    def state_dict(self) -> dict[str, Any]:
        return {"replay": self._replay.state_dict()} if self._replay else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._replay:
            self._replay.load_state_dict(state["replay"])

    def _key(self, iteration: int, update: int) -> Tensor:
        return mix(mix(torch.tensor(self._seed, device=self._device), iteration), update)

    def _own(
        self, iteration: int, transitions: Rollout, targets: Callable[[Rollout], Columns], now: Clock
    ) -> Iterator[Sample]:
        """Samples from the learners' own experience."""
        source, replay = self.source, self._replay
        if replay is None:
            columns = targets(transitions)
            yield from mini_batches(source, transitions, columns, self._num_learners, iteration, self._seed)
            return
        for sweep in range(source.num_updates_per_train_iter):
            key = self._key(iteration, sweep)
            if source.draws:
                self._drawn = replay.draw(source.mini_batch_size, key, now._replace(updates=now.updates + sweep))
                yield Sample(self._drawn.rollout, self._drawn.weight.flatten(), {})
            else:
                for part in replay.sweep(batches_of_a_sweep(source, iteration), key):
                    yield evenly_weighted(part, {})

    def _with_offline(self, own: Sample | None, key: Tensor, clock: Clock) -> Sample:
        """Sample of `own` and `source.mini_batch_size` windows of recorded histories. Weights make a learner's mean
        loss that of its own windows plus `source.offline_loss_weight` times that of the histories."""
        if self._offline is None:
            return cast(Sample, own)  # every update has one of the two
        others = self._offline.draw(self.source.mini_batch_size, key)
        weight = torch.full((others.obs.shape[1],), self._offline_weight(clock), device=others.obs.device)
        if own is None:
            return Sample(others, weight, {})
        joined = Rollout(*(self._joined(*pair) for pair in zip(own.rollout, others, strict=True)))
        num_windows = joined.obs.shape[1]
        own_weight = own.weight * (num_windows / len(own.weight))
        return Sample(joined, self._joined(own_weight, weight * (num_windows / len(weight))), {})

    def _joined(self, own: Tensor, others: Tensor) -> Tensor:
        """Concatenation of `[..., L * W]` and `[..., L * V]` to `[..., L * (W + V)]`, learner by learner."""
        parts = [part.unflatten(-1, (self._num_learners, -1)) for part in (own, others)]
        return torch.cat(parts, dim=-1).flatten(-2)


def without_others(config: Config) -> Config:
    """Configuration for tasks without recorded histories or a teacher: learners use only their own experience, and the
    planner is the expert."""
    if isinstance(config.source, NoiseDistillationConfig):
        return replace(config, source=replace(config.source, teacher="none"))
    if not isinstance(config.source, ReplayConfig):
        return config
    alone = {"offline_buffer_dir": "none", "rl_train_after_update_steps": 0, "rl_train_every_update_steps": 1}
    return replace(config, source=replace(config.source, **alone))


def mini_batches(
    source: SourceConfig, transitions: Rollout, targets: Columns, num_learners: int, iteration: int, seed: int
) -> Iterator[Sample]:
    """Mini-batches of an unroll `[T, L * N]` and its `targets`, one per update.

    Each of `source.num_updates_per_train_iter` sweeps cuts it into windows of `source.mini_batch_length` steps. It
    draws them without replacement, `source.mini_batch_size` for each learner. All learners draw the same window
    numbers, so learner k does not depend on the others."""
    for sweep in range(source.num_updates_per_train_iter):
        if not source.mini_batch_length and not source.mini_batch_size:
            yield evenly_weighted(transitions, targets)
            continue
        length = source.mini_batch_length or len(transitions.obs)
        windows = [_windows(column, length, num_learners) for column in (*transitions, *targets.values())]
        num_windows, device = windows[0].shape[2], transitions.obs.device
        order = shuffled(num_windows, mix(mix(torch.tensor(seed, device=device), iteration), sweep))
        for chosen in order.split(source.mini_batch_size or num_windows):
            columns = [column[:, :, chosen].flatten(1) for column in windows]
            rollout, cut = columns[: len(transitions)], columns[len(transitions) :]
            yield evenly_weighted(Rollout(*rollout), dict(zip(targets, cut, strict=True)))


def evenly_weighted(rollout: Rollout, targets: Columns) -> Sample:
    """Sample of `[T, L * W]` transitions whose windows have weight 1."""
    return Sample(rollout, torch.ones(rollout.obs.shape[1], device=rollout.obs.device), targets)


def _windows(column: Tensor, length: int, num_learners: int) -> Tensor:
    """`[T, L * N] -> [length, L, W]` with the W = T / length * N windows of each learner."""
    cut = column.unflatten(0, (-1, length)).unflatten(2, (num_learners, -1))  # [T / length, length, L, N]
    return cut.permute(1, 2, 0, 3).flatten(2)
