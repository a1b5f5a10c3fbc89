"""The loop of stage one: learners act, learn from what happened, and act on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol

import torch
from torch import Tensor

from icrl.collection.experience import Experience
from icrl.collection.pace import clock_of, num_iterations, unrolled
from icrl.collection.teachers import attach_expert, searcher_of
from icrl.config.schedules import Clock
from icrl.config.training_schema import SourceConfig
from icrl.contracts import Carry, Env, Learned, Policy, Rollout, Sample, Step
from icrl.envs.core import State
from icrl.envs.rollout import Streams, rollout, start_streams
from icrl.envs.tasks import streams_of
from icrl.randomness import Noise, draw_possible, epsilon_greedy, stream_seeds
from icrl.runs.divergence import DivergedError, Watch, bad_rows, diverged
from icrl.sources.a2c import A2C
from icrl.sources.dqn import DQN
from icrl.sources.experts import NoiseDistillation, Optimal, Random
from icrl.sources.ppo import PPO
from icrl.sources.q_learning import QLearning
from icrl.sources.searching import Searching

if TYPE_CHECKING:
    from icrl.config.root import Config

SOURCES: dict[str, Any] = {  # each takes the options of its own class
    "a2c": A2C,
    "ppo": PPO,
    "q_learning": QLearning,
    "dqn": DQN,
    "noise_distillation": NoiseDistillation,
    "searcher": Searching,
    "optimal": Optimal,
    "random": Random,
}


class Learner(Policy[Carry], Protocol[Carry]):
    """A policy that can be improved by its own experience; one object holds many independent learners."""

    num_learners: int

    def set_clock(self, clock: Clock) -> None:
        """Progress of the run, which rates are functions of."""
        ...

    def action_probabilities(self, step: Step) -> Tensor:
        """What `act` samples from, `[B, A]`; B is any multiple of the number of learners."""
        ...

    def targets(self, rollout: Rollout) -> dict[str, Tensor]:
        """What an update needs that depends on the whole unroll `[T, B]`, or on what the learners know before they
        learn from it, `[T, B]` each; they are cut into mini-batches as the transitions are."""
        ...

    def update(self, sample: Sample) -> Learned:
        """One update of every learner on its windows."""
        ...

    def parameters(self) -> Iterable[tuple[str, Tensor]]:
        """Names and parameters, with a leading learner axis each."""
        ...

    def outputs(self) -> dict[str, Tensor]:
        """What the learners' networks or tables say of every observation."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class EpsilonGreedy:
    """The learners' policies for evaluation: drawn from with probability `epsilon`, else the most probable action."""

    def __init__(self, learner: Learner[Any], epsilon: float) -> None:
        self._learner, self._epsilon = learner, epsilon

    def initial_carry(self, num_streams: int) -> tuple[()]:
        return ()

    def act(self, carry: tuple[()], step: Step, noise: Tensor) -> tuple[Tensor, tuple[()]]:
        probabilities = epsilon_greedy(self._learner.action_probabilities(step), self._epsilon)
        return draw_possible(probabilities, noise), carry


def make_learners(
    config: Config, env: Env[State], tasks: Tensor, device: torch.device
) -> tuple[Learner[tuple[()]], Streams[State, tuple[()]], Noise]:
    """Fresh learners for `tasks` `[G, task_dim]`, `source.num_learners` of each with `source.num_envs` streams."""
    source: Any = config.source  # of the class that the name stands for
    num_learners = len(tasks) * source.num_learners
    num_streams = num_learners * source.num_envs
    starts, noise, parameters = (
        stream_seeds(config.seed, n, purpose).to(device)
        for purpose, n in enumerate((num_streams, num_streams, num_learners))
    )
    learner = SOURCES[source.name](source, env.spec, parameters, device)
    if isinstance(learner, NoiseDistillation):

        def learners_of(theirs: SourceConfig) -> Any:
            """Fresh learners of what a teacher's run was: of these tasks, with its options."""
            seeds = parameters[:1].expand(len(tasks) * theirs.num_learners)
            return SOURCES[theirs.name](theirs, env.spec, seeds, device)

        attach_expert(learner, config, tasks, learners_of, device)
    if isinstance(learner, Searching):
        learner.policy = searcher_of(config.env)
    learner.set_clock(clock_of(source, 0))
    streams = start_streams(learner, env, streams_of(tasks, source.num_learners * source.num_envs), starts)
    return learner, streams, Noise(noise)


class UnrollWorker(Protocol[Carry]):
    """Where the unrolls of iterations come from, one after the other."""

    def play(self) -> tuple[Rollout, Streams[State, Carry]]:
        """The transitions `[T, B]` of the next iteration, and where the streams stand after it."""
        ...

    def learned(self) -> None:
        """To be called when the learner has learned from what `play` gave last."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What the unrolls to come depend on, beside learner and streams, once `learned` was called."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


class LocalUnrollWorker(Generic[Carry]):
    """Plays when it is asked to, with the policy as it is then."""

    def __init__(
        self,
        source: SourceConfig,
        env: Env[State],
        policy: Policy[Carry],
        streams: Streams[State, Carry],
        noise: Noise,
        first: int = 0,
    ) -> None:
        """Goes on with `streams` after `first` iterations; `noise` is set to the step that they have come to."""
        self._source, self._env, self._policy, self._streams, self._noise = source, env, policy, streams, noise
        self._done = first

    def play(self) -> tuple[Rollout, Streams[State, Carry]]:
        self._noise.time = unrolled(self._source, self._done)
        self._done += 1
        num_steps = unrolled(self._source, self._done) - self._noise.time
        if not num_steps:
            return _nothing(self._streams.step), self._streams
        transitions, self._streams = rollout(self._policy, self._env, self._streams, num_steps, self._noise)
        return transitions, self._streams

    def learned(self) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


def _nothing(step: Step) -> Rollout:
    """No transitions of the streams that show `step`, `[0, B]`."""
    like = {"obs": step.obs, "next_obs": step.obs, "terminated": step.terminated, "truncated": step.terminated}
    columns = {name: like.get(name, step.timestep) for name in Rollout._fields}
    return Rollout(**{name: column.new_empty((0, *column.shape)) for name, column in columns.items()})


def collect(
    learner: Learner[Carry], player: UnrollWorker[Carry], experience: Experience, first: int = 0
) -> Iterator[tuple[Rollout, dict[str, Tensor], Streams[State, Carry]]]:
    """From iteration `first` to the end of the run: take an unroll, learn from what `experience` makes of it, yield the
    transitions `[T, B]` (of no steps in the pretraining), the metrics of the last update (empty where there was none)
    and where the streams stand.

    Raises `DivergedError`, before anything is yielded, where a metric of an update is not finite."""
    source, watch = experience.source, Watch()
    learner.set_clock(clock_of(source, first))
    for iteration in range(first + 1, num_iterations(source) + 1):
        transitions, streams = player.play()
        metrics: dict[str, Tensor] = {}
        for clock, sample in experience.samples(iteration, transitions, learner.targets):
            learner.set_clock(clock)
            learned = learner.update(sample)
            experience.learned(clock, learned)
            metrics = learned.metrics
            watch.note(clock.updates + 1, metrics)
        if found := watch.first_bad():
            update, bad = found
            raise _diverged(source, f"in update {update}", bad, torch.stack([*bad.values()]).any(0), streams)
        learner.set_clock(clock_of(source, iteration))
        player.learned()
        yield transitions, metrics, streams


def check_parameters(learner: Learner[Carry], source: SourceConfig, streams: Streams[State, Carry], where: str) -> None:
    """Raise `DivergedError` where parameters are not finite."""
    bad = bad_rows(learner.parameters())
    if bad is not None and bad.any():
        raise _diverged(source, where, ["parameters"], bad, streams)


def _diverged(
    source: SourceConfig, where: str, names: Iterable[str], bad: Tensor, streams: Streams[State, Carry]
) -> DivergedError:
    """Name the first of the learners for which `bad` `[L]` is true."""
    tasks = streams.state.task
    number, num_bad = int(bad.int().argmax()), int(bad.sum())
    task = tasks[number * (len(tasks) // len(bad))].tolist()
    which = f"learner {number % source.num_learners} of task {task}"
    if num_bad > 1:
        which += f" (and {num_bad - 1} others of {len(bad)})"
    return diverged(f"source.name={source.name}, {where}, {which}", names, "a lower source.learning_rate")
