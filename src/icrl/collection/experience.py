"""Training samples for source agents, from the newest unroll.

T steps in a window, G tasks, L learners (task by task), N environments of each, W windows per learner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from icrl.config.schedules import Clock
from icrl.contracts import Rollout, Sample, UpdateResult
from icrl.randomness import integers, mix
from icrl.sources import source_class
from icrl.sources.options import SourceConfig
from icrl.sources.pace import batches_of_a_sweep, clock_of, own_windows
from icrl.spaces import EnvSpec

if TYPE_CHECKING:
    from icrl.app.root import Config

Columns = dict[str, Tensor]


class Experience:
    """Training samples of each iteration, with windows that are a function of (seed, iteration, update)."""

    def __init__(self, config: Config, spec: EnvSpec, tasks: Tensor, device: torch.device) -> None:
        """Samples for `source.num_learners` learners on each of `tasks` `[G, task_dim]`."""
        self.source = config.source
        self.num_learners = config.source.learners_for(len(tasks))
        self._seed = torch.tensor(config.seed, device=device)

    def samples(
        self, iteration: int, transitions: Rollout, targets: Callable[[Rollout], Columns]
    ) -> Iterator[tuple[Clock, Sample]]:
        """Samples of `iteration` (from 1) with the new `transitions` `[T, L * N]`: one per update, each with its clock.
        Call `learned` after each update. `targets` is called once, if the whole unroll is used."""
        source, now, key = self.source, clock_of(self.source, iteration - 1), mix(self._seed, iteration)
        num_updates = batches_of_a_sweep(source, iteration) * source.num_updates_per_train_iter
        parts: Iterable[Sample | None] = repeat(None, num_updates)
        if own_windows(source, iteration):
            parts = self.own(num_updates, transitions, targets, now, key)
        for update, own in enumerate(parts):
            clock = now._replace(updates=now.updates + update)
            yield clock, self.with_others(own, mix(mix(key, update), 1), clock)

    def learned(self, clock: Clock, learned: UpdateResult) -> None:
        """Record the result of the update on the last sample."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...

    def own(
        self, num_updates: int, transitions: Rollout, targets: Callable[[Rollout], Columns], now: Clock, key: Tensor
    ) -> Iterator[Sample]:
        """Samples from the learners' own experience, `num_updates` of them from `now` on."""
        return mini_batches(self.source, transitions, targets(transitions), self.num_learners, key)

    def with_others(self, own: Sample | None, key: Tensor, clock: Clock) -> Sample:
        """Sample of `own` and of what others played. Without `own` there must be others."""
        return cast(Sample, own)


def make_experience(config: Config, spec: EnvSpec, tasks: Tensor, device: torch.device) -> Experience:
    """Training samples of the configured source, by the class `experience` of its learners if they have one."""
    kind = source_class(config.source.name).experience or Experience
    return kind(config, spec, tasks, device)


def mini_batches(
    source: SourceConfig, transitions: Rollout, targets: Columns, num_learners: int, key: Tensor
) -> Iterator[Sample]:
    """Mini-batches of an unroll `[T, L * N]` and its `targets`, one per update, in an order given by `key` (one int64).

    Each of `source.num_updates_per_train_iter` sweeps cuts it into windows of `source.mini_batch_length` steps. It
    draws them without replacement, `source.mini_batch_size` for each learner, and for each task if it is shared. All
    learners draw the same window numbers, so learner k does not depend on the others."""
    for sweep in range(source.num_updates_per_train_iter):
        if not source.mini_batch_length and not source.mini_batch_size:
            yield evenly_weighted(transitions, targets)
            continue
        length = source.mini_batch_length or len(transitions.obs)
        cut = (column.unflatten(0, (-1, length)) for column in (*transitions, *targets.values()))
        # [T / length, length, L * N] -> [length, L, W] with the W = T / length * N windows of each learner
        windows = [column.unflatten(2, (num_learners, -1)).movedim(0, 2).flatten(2, 3) for column in cut]
        num_windows = windows[0].shape[2]
        each = num_windows * source.mini_batch_size // (len(transitions.obs) // length * source.num_envs) or num_windows
        for chosen in shuffled(num_windows, mix(key, sweep)).split(each):
            columns = iter([column[:, :, chosen].flatten(1, 2) for column in windows])
            yield evenly_weighted(Rollout(*islice(columns, len(transitions))), dict(zip(targets, columns, strict=True)))


def evenly_weighted(rollout: Rollout, targets: Columns) -> Sample:
    """Sample of `[T, L * W]` transitions whose windows have weight 1."""
    return Sample(rollout, torch.ones(rollout.obs.shape[1], device=rollout.obs.device), targets)


def shuffled(count: int, key: Tensor) -> Tensor:
    """Permutation of 0 .. count - 1, a function of `key` (one int64)."""
    return integers(key.expand(count), torch.arange(count, device=key.device), 1 << 30).argsort()
