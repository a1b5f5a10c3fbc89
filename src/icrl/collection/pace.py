"""How much work there is and how it is spaced: pure functions of the options and the iteration."""

import math
from array import array
from fractions import Fraction
from functools import lru_cache

from icrl.config.schedules import Clock
from icrl.config.training_schema import ReplayConfig, SourceConfig

BLOCK = 64  # env steps that an evaluation plays between two looks at whether all streams have played enough


def replays(source: SourceConfig) -> bool:
    """Whether it learns from all that is kept of its experience, not from the newest unroll alone."""
    return isinstance(source, ReplayConfig) and not source.clear_replay_buffer


def draws(source: SourceConfig) -> bool:
    """Whether mini-batches are drawn from what is kept, instead of dealt out in sweeps."""
    return isinstance(source, ReplayConfig) and not source.whole_replay_buffer_training


def has_offline(source: SourceConfig) -> bool:
    """Whether it learns from histories of others too."""
    return isinstance(source, ReplayConfig) and source.offline_buffer_dir != "none"


def pretraining(source: SourceConfig) -> int:
    """Iterations before the first env step; only what learns from others has such."""
    return source.rl_train_after_update_steps if isinstance(source, ReplayConfig) else 0


def unrolled(source: SourceConfig, iterations: int) -> int:
    """Env steps of each environment in the first so many iterations: floor(iterations * unroll_length) after the
    pretraining, so that a fraction is carried over and never lost."""
    return math.floor(max(iterations - pretraining(source), 0) * Fraction(str(source.unroll_length)))


def num_iterations(source: SourceConfig) -> int:
    """Iterations of stage one: as asked for, else the fewest that make `num_env_steps`."""
    if source.num_iterations:
        return source.num_iterations
    return pretraining(source) + _unrolls_for(source, source.num_env_steps)


def env_steps(source: SourceConfig) -> int:
    """Env steps of a learner in all its iterations, over all its environments."""
    return unrolled(source, num_iterations(source)) * source.num_envs


def _unrolls_for(source: SourceConfig, env_steps: int) -> int:
    """The fewest unrolls in which a learner makes `env_steps`."""
    per_env = -(-env_steps // source.num_envs)  # rounded up without a float, so that the quotient below is exact
    return math.ceil(per_env / Fraction(str(source.unroll_length)))


def first_update(source: SourceConfig) -> int:
    """The first iteration after whose unroll there are `initial_collect_steps`, and learning from them begins."""
    return pretraining(source) + max(1, _unrolls_for(source, source.initial_collect_steps))


def window_length(source: SourceConfig, steps: int) -> int:
    """Steps of a window that is learned from, after an unroll of so many `steps`."""
    return source.mini_batch_length or (1 if replays(source) else steps)


def own_windows(source: SourceConfig, iteration: int) -> int:
    """Windows of a learner's own experience that can be learned from in `iteration` (from 1); 0 where it is not to."""
    every = source.rl_train_every_update_steps if isinstance(source, ReplayConfig) else 1
    if iteration < first_update(source) or iteration % every:
        return 0
    steps = unrolled(source, iteration) - unrolled(source, iteration - 1)
    length = window_length(source, steps)
    if isinstance(source, ReplayConfig) and replays(source):
        kept = min(unrolled(source, iteration), source.replay_buffer_length)
        return (kept - length + 1 if draws(source) else kept // length) * source.num_envs if kept >= length else 0
    return steps // length * source.num_envs


def batches_of_a_sweep(source: SourceConfig, iteration: int) -> int:
    """Updates in each of the `source.num_updates_per_train_iter` sweeps of `iteration` (from 1): with the learner's own
    experience, or else with that of others alone."""
    windows = own_windows(source, iteration)
    if not windows:
        return int(has_offline(source))
    return max(1, windows // source.mini_batch_size) if source.mini_batch_size and not draws(source) else 1


class _ByValue:
    """A source as a key, equal to others with the same options."""

    def __init__(self, source: SourceConfig) -> None:
        self.source, self._value = source, repr(source)

    def __hash__(self) -> int:
        return hash(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByValue) and self._value == other._value


@lru_cache(maxsize=8)
def _updates_until(key: _ByValue) -> "array[int]":
    """Updates before the end of each iteration, from 0 on: as far as `_updates` has counted."""
    return array("q", [0])


def _updates(source: SourceConfig, iteration: int) -> int:
    """Updates before the end of `iteration`. Counted iteration by iteration, and no further than asked: of a billion
    iterations most may never come."""
    until = _updates_until(_ByValue(source))
    for following in range(len(until), iteration + 1):
        until.append(until[-1] + batches_of_a_sweep(source, following) * source.num_updates_per_train_iter)
    return until[iteration]


def clock_of(source: SourceConfig, iteration: int) -> Clock:
    """Progress when `iteration` iterations of stage one are done."""
    steps = unrolled(source, iteration) * source.num_envs
    return Clock(iteration / num_iterations(source), iteration, steps, _updates(source, iteration))
