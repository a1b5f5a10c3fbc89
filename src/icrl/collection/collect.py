"""Loop of stage one: learners alternate between playing an unroll and learning from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from icrl.collection.experience import Experience
from icrl.contracts import Env, Policy, Rollout, Step
from icrl.envs.core import State
from icrl.envs.rollout import Streams, rollout, start_streams
from icrl.randomness import Noise, stream_seeds
from icrl.runs.divergence import DivergedError, Watch, bad_rows, diverged
from icrl.sources import source_class
from icrl.sources.learners import Learner
from icrl.sources.options import SourceConfig
from icrl.sources.pace import clock_of, num_iterations, unrolled

if TYPE_CHECKING:
    from icrl.app.root import Config


class EpsilonGreedy:
    """Policies of learners for evaluation: sampled with probability `epsilon`, else the most probable action."""

    def __init__(self, learner: Learner, epsilon: float) -> None:
        self._learner, self._epsilon = learner, epsilon

    def initial_carry(self, num_streams: int) -> Any:
        return self._learner.initial_carry(num_streams) if self._learner.has_memory else ()

    def act(self, carry: Any, step: Step, noise: Tensor) -> tuple[Tensor, Any]:
        step, carry = self._learner.remember(carry, step)
        return self._learner.act_in_evaluation(step, noise, self._epsilon), carry


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


class Actor(Policy[Any], Protocol):
    """Policy that also computes what its learners need beside the transitions; see `Learner.targets`."""

    def targets(self, rollout: Rollout, carry: Any) -> dict[str, Tensor]: ...


class UnrollWorker:
    """Producer of one unroll per iteration; the default methods are those of a stateless worker."""

    before: Any = ()  # carry of the policy before the unroll that `play` returned last

    def play(self) -> tuple[Rollout, Streams[State, Any]]:
        """Transitions `[T, B]` of the next iteration, and the streams after it."""
        raise NotImplementedError

    def targets(self, rollout: Rollout) -> dict[str, Tensor]:
        """Columns `[T, B]` of the `rollout` that `play` returned last, by the policy that played it. Call it before the
        learners change."""
        raise NotImplementedError

    def learned(self) -> None:
        """Notify the worker that the learner has learned from the last unroll."""

    def state_dict(self) -> dict[str, Any]:
        """State, beside learner and streams, that later unrolls depend on. Call it after `learned`."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state. Call it before the first `play`."""

    def close(self) -> None:
        """Release processes. Calling it twice is fine."""


class LocalUnrollWorker(UnrollWorker):
    """Worker in this process, which plays with the current policy."""

    def __init__(
        self,
        source: SourceConfig,
        env: Env[State],
        policy: Actor,
        streams: Streams[State, Any],
        noise: Noise,
        first: int = 0,
    ) -> None:
        """Continue with `streams` after `first` iterations; `noise` is set to the same step."""
        self._source, self._env, self._policy, self._streams, self._noise = source, env, policy, streams, noise
        self._done, self.before = first, streams.carry

    def play(self) -> tuple[Rollout, Streams[State, Any]]:
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

    def targets(self, rollout: Rollout) -> dict[str, Tensor]:
        return self._policy.targets(rollout, self.before)


def collect(
    learner: Learner,
    worker: UnrollWorker,
    experience: Experience,
    first: int = 0,
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
            learned = learner.update(sample)
            experience.learned(clock, learned)
            metrics = learned.metrics
            watch.record(clock.updates + 1, metrics)
        if first_bad := watch.first_bad():
            update, bad = first_bad
            raise _diverged(source, f"in update {update}", bad, torch.stack([*bad.values()]).any(0), streams)
        learner.set_clock(clock_of(source, iteration))
        worker.learned()
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
