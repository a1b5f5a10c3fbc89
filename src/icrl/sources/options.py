"""Options that all sources share, and the rules among them. Amount and spacing of work in stage one: pure functions of
the options and the iteration."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import model_validator

from icrl.config.options import NO_EFFECT, Options, Rate, option, with_values
from icrl.config.schedules import Clock
from icrl.contracts import ConfigError

if TYPE_CHECKING:
    from icrl.app.root import Config

NotNegative = Annotated[Any, Rate(ge=0)]
Share = Annotated[Any, Rate(ge=0, le=1)]
Conflicts = Iterator[tuple[object, str]]  # conditions that must not hold; in messages `$option` is its name and value
_MOST_COUNTED = 8  # options whose updates `clock_of` keeps
NEWEST_ALONE = "$shared needs a learner that learns from its newest unroll alone, such as a2c, not $name"


def named(name: str) -> Any:
    """Declare the option `name` of a source."""
    return option(name, "source algorithm; the preset `source=` sets all of this group")


def falling(until: float) -> dict[str, Any]:
    """Line from 1 at the start of the run to 0 at the share `until` of it."""
    return {"kind": "linear", "progress": "percent", "points": [[0, 1.0], [until, 0.0]]}


class SourceConfig(Options):
    """Options of every source; each source adds its own."""

    learns: ClassVar[bool] = True  # by updates
    in_context: ClassVar[bool] = False  # acts on all that its stream has shown, so evaluations must not cut its past
    # Sources that learn from more than the newest unroll have properties in place of these.
    replays: ClassVar[bool] = False  # learns from earlier steps, which are kept
    pretraining: ClassVar[int] = 0  # iterations before the first env step

    name: str = named("")
    num_learners: int = option(10, "independent learners per training task", ge=1, le=10**5)
    shared: bool = option(False, "one learner for all tasks, in place of source.num_learners for each of them")
    num_envs: int = option(10, "environments per learner and task; each is one history row", ge=1, le=10**6)
    num_iterations: int = option(
        0,
        "iterations of unroll and updates (0: as many as source.num_env_steps needs; if more, a source with a "
        "replay buffer keeps learning from it)",
        ge=0,
    )
    num_env_steps: int = option(30000, "env steps per learner in all (0: as many as source.num_iterations make)", ge=0)
    history_steps: int = option(30000, "env steps per learner that are recorded, counted from the start", ge=1)
    task_change: float = option(
        0.0,
        "probability that the task of the next episode of a stream is drawn anew, from the training tasks that are not "
        "set aside for development; no observation shows the change",
        ge=0,
        le=1,
    )
    unroll_length: float = option(
        10.0, "env steps per environment and iteration (n of n-step returns); fractions carry over", ge=1, le=10**6
    )
    initial_collect_steps: int = option(0, "env steps per learner before its first update", ge=0)
    num_updates_per_train_iter: int = option(1, "sweeps of updates over an iteration's transitions", ge=1, le=10**6)
    mini_batch_length: int = option(0, "env steps of a training window (0: the unroll, or 1 with a replay)", ge=0)
    mini_batch_size: int = option(0, "windows per learner, task and update (0: all)", ge=0)
    async_unroll: bool = option(False, "collect unrolls in another process while this one learns from earlier unrolls")
    unroll_queue_size: int = option(2, "iterations by which the parameters that play lag behind", ge=1, le=10**4)
    discount: float = option(0.99, "discount factor of the returns", ge=0, le=1)
    evaluate: bool = option(False, "also play evaluation episodes during training (evals.*), and keep the best agents")
    videos_per_task: int = option(
        1, "learners per task that get a video of their own, 16 in all at most (0: none)", ge=0, may_change=True
    )

    former = dict.fromkeys(("per_agent_curves", "export", "max_videos", "unroll_step_interval"), NO_EFFECT)
    former |= {"unroll_parameter_update_period": 1, "vectorization": NO_EFFECT, "num_workers": NO_EFFECT}

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_source(self)
        return self

    @property
    def trains_on(self) -> bool:
        """True if env steps end at `num_env_steps`, and updates may go on from the replay up to `num_iterations`."""
        return bool(self.num_env_steps and self.num_iterations and self.replays)

    def inputs(self, config: Config) -> dict[str, str]:
        """Checksums of what learners with these options read, by option. Raises `ConfigError` if one is missing."""
        return {}

    def run_before(self, config: Config) -> Config | None:
        """Configuration of a run of stage one that must be finished before that of `config`; None if there is none."""
        return None

    def alone(self) -> dict[str, Any] | None:
        """Changes of the options so that one learner can be trained by itself, as for a film; None if it cannot."""
        return None if self.shared else {}

    def learners_for(self, num_tasks: int) -> int:
        """Learners in all, for `num_tasks` training tasks."""
        return self.num_learners * (1 if self.shared else num_tasks)

    def conflicts(self) -> Conflicts:
        steps, asked, unroll, made = self.num_env_steps, self.num_iterations, self.unroll_length, env_steps(self)
        fits = max(min(self.history_steps, made) // self.num_envs, 1) * self.num_envs
        yield not steps and not asked, "$num_iterations and $num_env_steps: one of them must be above 0"
        factors = f"$num_envs x $unroll_length = {self.num_envs * unroll:g}"
        more = f"$num_env_steps must be a multiple of {factors}: give source.num_env_steps={made}"
        yield steps and made != steps and not asked, more
        given = f"$num_iterations of {factors} env steps make {made}, not $num_env_steps"
        more = "" if self.replays else " (more need a replay to learn from)"
        given += f"; give source.num_env_steps={made}, or 0{more}"
        yield steps and asked and made != steps, given
        given = f"$initial_collect_steps leaves no steps to train: source.num_env_steps is {made}"
        yield self.initial_collect_steps >= made, given
        if not self.learns:
            of_learning = ("async_", "initial_", "num_updates_", "mini_", "discount")
            yield from self.unused(of_learning, "has no effect: $name learns nothing")
        if not self.async_unroll:
            yield from self.unused(("unroll_queue_",), "has no effect with $async_unroll")
        yield self.shared and self.num_learners > 1, "$shared is one learner for all tasks: give source.num_learners=1"
        yield self.shared and not self.learns, NEWEST_ALONE
        yield self.task_change and self.async_unroll, "$task_change needs source.async_unroll=false"
        fewer = f"give source.history_steps={fits}"
        yield self.history_steps > made, f"$history_steps is more than source.num_env_steps={made}: {fewer}"
        yield self.history_steps % self.num_envs, f"$history_steps must be a multiple of $num_envs: {fewer}"
        fewer = f"give source.videos_per_task={self.num_learners}"
        yield self.videos_per_task > self.num_learners, f"$videos_per_task is more than $num_learners: {fewer}"
        if not self.replays:  # an unroll is cut up
            length, size, whole = self.mini_batch_length, self.mini_batch_size, unroll == int(unroll)
            windows = self.num_envs * (int(unroll) // length if length and whole else 1)
            yield length > 1 and unroll % length, "$mini_batch_length must divide $unroll_length"
            given = f"$mini_batch_size must divide the {windows} windows of $num_envs and $mini_batch_length"
            yield size and windows % size, given

    def windows_in(self, unroll: int, played: int) -> int:
        """Windows of each environment to learn from, after the newest of `played` env steps, an `unroll`."""
        return unroll // (self.mini_batch_length or unroll)

    def batches_in(self, windows: int) -> int:
        """Updates in a sweep over so many windows of a learner."""
        return max(1, windows // (self.mini_batch_size or windows)) if windows else 0

    def unused(self, prefixes: tuple[str, ...], reason: str) -> Conflicts:
        """Rules that options with these prefixes keep their defaults."""
        for name, field in type(self).model_fields.items():
            yield name.startswith(prefixes) and getattr(self, name) != field.default, f"${name} {reason}"


def check_source(source: SourceConfig) -> None:
    """Raise `ConfigError` at the first conflict among the options of `source`."""
    for broken, message in source.conflicts():
        if broken:
            raise ConfigError(with_values(message, source, "source."))


class NetworkConfig(SourceConfig):
    """Sources with a network, trained by Adam."""

    hidden_size: int = option(128, "width of observation embeddings; over vectors, of hidden layers", ge=1, le=2**16)
    learning_rate: NotNegative = option(0.003, "Adam's learning rate")
    max_gradient_norm: float = option(0.5, "norm at which each learner's gradient is clipped", gt=0)

    former = {"adam_beta1": 0.9, "adam_beta2": 0.999, "adam_eps": 1e-6}


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


def own_windows(source: SourceConfig, iteration: int) -> int:
    """Windows of a learner's own experience to learn from in `iteration` (from 1); 0 if it must not learn from it."""
    if iteration < first_update(source):
        return 0
    before, played = unrolled(source, iteration - 1), unrolled(source, iteration)
    return source.windows_in(played - before, played) * source.num_envs


def batches_of_a_sweep(source: SourceConfig, iteration: int) -> int:
    """Updates in each sweep of `iteration` (from 1), on own experience or on recorded histories alone."""
    return source.batches_in(own_windows(source, iteration))


@lru_cache(maxsize=8)
def _exact(number: float) -> Fraction:
    """The number as it is written in decimals."""
    return Fraction(str(number))


# Updates before the end of each iteration, from 0 on, as far as `clock_of` has counted, by the identity of the options:
# comparing all their values would take longer than counting.
_COUNTED: dict[int, tuple[SourceConfig, array[int]]] = {}


def clock_of(source: SourceConfig, iteration: int) -> Clock:
    """Progress after `iteration` iterations of stage one.

    Updates are counted iteration by iteration and no further than asked, because a run may have a billion of them."""
    if id(source) not in _COUNTED and len(_COUNTED) >= _MOST_COUNTED:
        _COUNTED.clear()
    _, until = _COUNTED.setdefault(id(source), (source, array("q", [0])))
    for following in range(len(until), iteration + 1):
        until.append(until[-1] + batches_of_a_sweep(source, following) * source.num_updates_per_train_iter)
    steps = unrolled(source, iteration) * source.num_envs
    return Clock(iteration / num_iterations(source), iteration, steps, until[iteration])
