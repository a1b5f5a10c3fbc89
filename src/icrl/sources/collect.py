"""Loop of stage one: learners alternate between playing an unroll and learning from samples of it.

T steps in a window, G tasks, L learners (task by task), N environments of each, W windows per learner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from icrl.config.options import refuse
from icrl.config.schedules import Clock
from icrl.contracts import Env, Policy, Rollout, Sample, Step, UpdateResult
from icrl.envs.core import State
from icrl.envs.rollout import Streams, rollout, start_streams
from icrl.randomness import Noise, integers, mix, stream_seeds
from icrl.runs.divergence import DivergedError, Watch, bad_rows, diverged
from icrl.sources import source_class
from icrl.sources.learners import Learner
from icrl.sources.options import SourceConfig, clock_of, num_iterations, own_windows, unrolled
from icrl.spaces import EnvSpec

if TYPE_CHECKING:
    from icrl.app.root import Config

Columns = dict[str, Tensor]


class SampledOrGreedy:
    """Policies of learners for evaluation: drawn with chance `sample_probability`, else most probable actions."""

    def __init__(self, learner: Learner, sample_probability: float) -> None:
        self._learner, self._sample_probability = learner, sample_probability

    def initial_carry(self, num_streams: int) -> Any:
        return self._learner.initial_carry(num_streams) if self._learner.has_memory else ()

    def act(self, carry: Any, step: Step, noise: Tensor) -> tuple[Tensor, Any]:
        step, carry = self._learner.remember(carry, step)
        return self._learner.act_in_evaluation(step, noise, self._sample_probability), carry


def make_learners(
    config: Config, env: Env[State], tasks: Tensor, device: torch.device, before: int = 0
) -> tuple[Learner, Streams[State, Any], Noise]:
    """New learners for `tasks` `[G, task_dim]`: `source.num_learners` per task with `source.num_envs` streams each, or
    with `source.shared` one learner that plays all these streams. `before`: training tasks of earlier shards, after
    whose seeds come those of these learners."""
    source = config.source
    per_task = source.num_learners * source.num_envs
    each = (per_task, per_task, source.learners_for(1))
    starts, noise, parameters = (
        stream_seeds(config.seed, n * (before + len(tasks)), i)[n * before :].to(device) for i, n in enumerate(each)
    )
    parameters = parameters[: source.learners_for(len(tasks))]
    learner: Learner = source_class(source.name).create(config, env, tasks, parameters, device)
    learner.set_clock(clock_of(source, 0))
    streams = start_streams(learner, env, tasks.repeat_interleave(per_task, dim=0), starts)
    return learner, streams, Noise(noise)


class UnrollPolicy(Policy[Any], Protocol):
    """Learner, or another policy with its `targets`."""

    def targets(self, rollout: Rollout, carry: Any) -> Columns: ...


class UnrollWorker:
    """Plays one unroll per iteration, in this process and with the current policy."""

    before: Any = ()  # carry of the policy before the unroll that `play` returned last

    def __init__(
        self,
        source: SourceConfig,
        env: Env[State],
        policy: UnrollPolicy,
        streams: Streams[State, Any],
        noise: Noise,
        first: int = 0,
    ) -> None:
        """Continue with `streams` after `first` iterations; `noise` is set to the same step."""
        self._source, self._env, self._policy, self._streams, self._noise = source, env, policy, streams, noise
        self._done, self.before = first, streams.carry

    def play(self) -> tuple[Rollout, Streams[State, Any]]:
        """Transitions `[T, B]` of the next iteration, and the streams after it."""
        self._noise.time = unrolled(self._source, self._done)
        self._done += 1
        num_steps, step = unrolled(self._source, self._done) - self._noise.time, self._streams.step
        self.before = self._streams.carry
        if not num_steps:
            best = step.optimal_action
            first = Rollout(step.obs, best, step.reward, step.obs, step.timestep, step.terminated, step.truncated, best)
            return first.each(lambda column: column.new_empty((0, *column.shape))), self._streams
        transitions, self._streams = rollout(self._policy, self._env, self._streams, num_steps, self._noise)
        return transitions, self._streams

    def targets(self, rollout: Rollout) -> Columns:
        """Columns `[T, B, ...]` of the `rollout` that `play` returned last, by its policy. Call it before an update."""
        return self._policy.targets(rollout, self.before)

    def parameters_changed(self) -> None:
        """Notify the worker that the learner has learned from the last unroll; a process elsewhere gets its weights."""

    def state_dict(self) -> dict[str, Any]:
        """State, beside learner and streams, that later unrolls depend on. Call it after `parameters_changed`."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state. Call it before the first `play`."""

    def close(self) -> None:
        """Release processes. Calling it twice is fine."""


ASYNC_WORKERS: list[Callable[..., UnrollWorker]] = []  # class of the worker in another process, of an extension


def make_unroll_worker(
    config: Config,
    env: Env[State],
    learner: Learner,
    streams: Streams[State, Any],
    noise: Noise,
    first: int,
    in_thread: bool = False,
) -> UnrollWorker:
    """Worker for `collect` from iteration `first`. With `source.async_unroll` another process plays, or with
    `in_thread` a thread of this one."""
    if not config.source.async_unroll:
        return UnrollWorker(config.source, env, learner, streams, noise, first)
    refuse(not ASYNC_WORKERS, "source.async_unroll=true needs an extension that is not installed: give false")
    return ASYNC_WORKERS[-1](config, learner, streams, noise, first, in_thread)


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
        Call `record` after each update. `targets` is called once, if the learners learn from the unroll."""
        if not own_windows(self.source, iteration):
            return
        now, key = clock_of(self.source, iteration - 1), mix(self._seed, iteration)
        samples = mini_batches(self.source, transitions, targets(transitions), self.num_learners, key)
        for update, sample in enumerate(samples):
            yield now._replace(updates=now.updates + update), sample

    def record(self, clock: Clock, result: UpdateResult) -> None:
        """Record the result of the update on the last sample, as replay with priorities does."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


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


def collect(
    learner: Learner, worker: UnrollWorker, experience: Experience, first: int = 0
) -> Iterator[tuple[Rollout, dict[str, Tensor], Streams[State, Any]]]:
    """Run the iterations from `first` to the end: take an unroll, learn from the samples of `experience`, and yield the
    transitions `[T, B]` (no steps during pretraining), the metrics of the last update (empty if there was none) and the
    streams.

    Raises `DivergedError`, before anything is yielded, if a metric of an update is not finite."""
    source, watch = experience.source, Watch()
    learner.set_clock(clock_of(source, first))
    for iteration in range(first + 1, num_iterations(source) + 1):
        transitions, streams = worker.play()
        metrics: dict[str, Tensor] = {}
        for clock, sample in experience.samples(iteration, transitions, worker.targets):
            learner.set_clock(clock)
            result = learner.update(sample)
            experience.record(clock, result)
            metrics = result.metrics
            watch.record(clock.updates + 1, metrics)
        if first_bad := watch.first_bad():
            update, bad = first_bad
            raise _diverged(source, f"in update {update}", bad, torch.stack([*bad.values()]).any(0), streams)
        learner.set_clock(clock_of(source, iteration))
        worker.parameters_changed()
        recorded = learner.recorded(transitions, worker.before) if len(transitions.obs) else transitions
        yield recorded, metrics, streams


def check_parameters(learner: Learner, source: SourceConfig, streams: Streams[State, Any], where: str) -> None:
    """Raise `DivergedError` if a parameter is not finite."""
    bad = bad_rows(learner.parameters())
    if bad is not None and bad.any():
        raise _diverged(source, where, ["parameters"], bad, streams)


def _diverged(
    source: SourceConfig, where: str, names: Iterable[str], bad: Tensor, streams: Streams[State, Any]
) -> DivergedError:
    """Error that names the first learner where `bad` `[L]` is true."""
    tasks, number, num_bad = streams.state.task, int(bad.int().argmax()), int(bad.sum())
    task = tasks[number * (len(tasks) // len(bad))].tolist()
    others = f" (and {num_bad - 1} others of {len(bad)})" if num_bad > 1 else ""
    whose = "the learner of all tasks" if source.shared else f"learner {number % source.num_learners} of task {task}"
    where = f"source.name={source.name}, {where}, {whose}{others}"
    return diverged(where, names, "a lower source.learning_rate")
