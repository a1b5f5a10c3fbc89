"""Amount and spacing of work in stage one: pure functions of the options and the iteration."""

from __future__ import annotations

import math
from array import array
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from icrl.config.schedules import Clock

if TYPE_CHECKING:
    from icrl.sources.options import SourceConfig


def unrolled(source: SourceConfig, iterations: int) -> int:
    """Env steps of each environment in the first `iterations`; a fraction is carried over and never lost."""
    steps = due_steps(source, iterations)
    return min(steps, source.num_env_steps // source.num_envs) if source.trains_on else steps


def due_steps(source: SourceConfig, iterations: int) -> int:
    """The same without an end: after the last env step, the steps that the iterations would have made."""
    return math.floor(max(iterations - source.pretraining, 0) * _exact(source.unroll_length))


def num_iterations(source: SourceConfig) -> int:
    """Iterations of stage one: the option, else the fewest that make `num_env_steps`."""
    return source.num_iterations or source.pretraining + _unrolls_for(source, source.num_env_steps)


def env_steps(source: SourceConfig) -> int:
    """Env steps of a learner in all its iterations, over all its environments."""
    return unrolled(source, num_iterations(source)) * source.num_envs


def _unrolls_for(source: SourceConfig, env_steps: int) -> int:
    """Fewest unrolls in which a learner makes `env_steps`."""
    per_env = -(-env_steps // source.num_envs)  # rounded up without a float, so that the quotient below is exact
    return math.ceil(per_env / _exact(source.unroll_length))


def first_update(source: SourceConfig) -> int:
    """First iteration whose unroll completes `initial_collect_steps`, so that learning from own experience begins."""
    return source.pretraining + max(1, _unrolls_for(source, source.initial_collect_steps))


def window_length(source: SourceConfig, steps: int) -> int:
    """Steps of a training window, after an unroll of `steps`."""
    return source.mini_batch_length or (1 if source.replays else steps)


def own_windows(source: SourceConfig, iteration: int) -> int:
    """Windows of a learner's own experience to learn from in `iteration` (from 1); 0 if it must not learn from it."""
    if iteration < first_update(source):
        return 0
    steps = unrolled(source, iteration) - unrolled(source, iteration - 1)
    length = window_length(source, steps)
    if source.replays:
        steps = min(unrolled(source, iteration), source.kept_steps)
    return (max(steps - length + 1, 0) if source.draws else steps // length) * source.num_envs


def batches_of_a_sweep(source: SourceConfig, iteration: int) -> int:
    """Updates in each sweep of `iteration` (from 1), on own experience or on recorded histories alone."""
    windows = own_windows(source, iteration)
    if not windows:
        return int(source.has_offline)
    return max(1, windows // source.mini_batch_size) if source.mini_batch_size and not source.draws else 1


@lru_cache(maxsize=8)
def _exact(number: float) -> Fraction:
    """The number as it is written in decimals."""
    return Fraction(str(number))


class _Same(NamedTuple):
    """Options that are equal to themselves alone: comparing all their values takes longer than counting updates."""

    source: SourceConfig

    def __hash__(self) -> int:
        return id(self.source)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.source is other.source


@lru_cache(maxsize=8)
def _updates_until(options: _Same) -> array[int]:
    """Updates before the end of each iteration, from 0 on, as far as `clock_of` has counted for these options."""
    return array("q", [0])


def clock_of(source: SourceConfig, iteration: int) -> Clock:
    """Progress after `iteration` iterations of stage one.

    Updates are counted iteration by iteration and no further than asked, because a run may have a billion of them."""
    until = _updates_until(_Same(source))
    for following in range(len(until), iteration + 1):
        until.append(until[-1] + batches_of_a_sweep(source, following) * source.num_updates_per_train_iter)
    steps = unrolled(source, iteration) * source.num_envs
    return Clock(iteration / num_iterations(source), iteration, steps, until[iteration])
