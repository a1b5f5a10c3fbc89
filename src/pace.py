"""How much work there is and how it is spaced: pure functions of the options and the iteration."""

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from src.schedules import Clock

if TYPE_CHECKING:
    from src.training_schema import SourceConfig


def unrolled(source: "SourceConfig", iterations: int) -> int:
    """Env steps of each environment in the first so many iterations: floor(iterations * unroll_length), so that a
    fraction is carried over and never lost."""
    return math.floor(iterations * Fraction(str(source.unroll_length)))


def num_iterations(source: "SourceConfig") -> int:
    """Iterations of stage one: as asked for, else the fewest that make `num_env_steps`."""
    if source.num_iterations:
        return source.num_iterations
    return _iterations_for(source, source.num_env_steps)


def env_steps(source: "SourceConfig") -> int:
    """Env steps of a learner in all its iterations, over all its environments."""
    return unrolled(source, num_iterations(source)) * source.num_envs


def _iterations_for(source: "SourceConfig", env_steps: int) -> int:
    """The fewest iterations in which a learner makes `env_steps`."""
    per_env = -(-env_steps // source.num_envs)  # rounded up without a float, so that the quotient below is exact
    return math.ceil(per_env / Fraction(str(source.unroll_length)))


def first_update(source: "SourceConfig") -> int:
    """The first iteration after whose unroll there are `initial_collect_steps`, and learning begins."""
    return max(1, _iterations_for(source, source.initial_collect_steps))


def clock_of(source: "SourceConfig", iteration: int) -> Clock:
    """Progress when `iteration` iterations of stage one are done."""
    learned = max(iteration - first_update(source) + 1, 0)  # iterations with updates
    sweeps = learned * source.num_updates_per_train_iter
    if source.mini_batch_size:
        windows = learned
        if source.mini_batch_length:
            steps = unrolled(source, iteration) - unrolled(source, iteration - learned)
            windows = steps // source.mini_batch_length
        sweeps = windows * source.num_envs // source.mini_batch_size * source.num_updates_per_train_iter
    env_steps = unrolled(source, iteration) * source.num_envs
    return Clock(iteration / num_iterations(source), iteration, env_steps, sweeps)


def interval_of(number: int, interval: int, iterations: int) -> int:
    """Iterations between two of something that happens `number` times or every `interval`; 0: never."""
    return math.ceil(iterations / number) if number else interval


def is_due(iteration: int, interval: int) -> bool:
    """Whether it is time again; never where `interval` is 0."""
    return bool(interval) and iteration % interval == 0
