"""The loop of stage one: learners act, learn from what happened, and act on."""

from collections.abc import Iterable, Iterator
from typing import Any, Generic, Protocol

import torch
from torch import Tensor

from src.contracts import Carry, Env, Policy, Rollout, Step
from src.envs.base import State
from src.envs.rollout import Streams, rollout, start_streams
from src.envs.tasks import streams_of
from src.pace import clock_of, first_update, num_iterations, unrolled
from src.randomness import Noise, cumulative, draw, epsilon_greedy, integers, mix, stream_seeds
from src.schedules import Clock
from src.schema import Config
from src.sources.a2c import A2C
from src.sources.q_learning import QLearning
from src.training_schema import SourceConfig

SOURCES = {"a2c": A2C, "q_learning": QLearning}


class Learner(Policy[Carry], Protocol[Carry]):
    """A policy that can be improved by its own experience; one object holds many independent learners."""

    num_learners: int

    def set_clock(self, clock: Clock) -> None:
        """Progress of the run, which rates are functions of."""
        ...

    def action_probabilities(self, obs: Tensor) -> Tensor:
        """What `act` samples from, `[B] -> [B, A]`; B is any multiple of the number of learners."""
        ...

    def update(self, rollout: Rollout) -> dict[str, Tensor]:
        """One update of every learner on `[T, B]` transitions of their streams; metrics `[learners]`."""
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
        probabilities = self._learner.action_probabilities(step.obs)
        return draw(cumulative(epsilon_greedy(probabilities, self._epsilon)), noise), carry


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
    learner.set_clock(clock_of(source, 0))
    streams = start_streams(learner, env, streams_of(tasks, source.num_learners * source.num_envs), starts)
    return learner, streams, Noise(noise)


class Player(Protocol[Carry]):
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


class LocalPlayer(Generic[Carry]):
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
        transitions, self._streams = rollout(self._policy, self._env, self._streams, num_steps, self._noise)
        return transitions, self._streams

    def learned(self) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


def collect(
    source: SourceConfig, learner: Learner[Carry], player: Player[Carry], first: int = 0, seed: int = 0
) -> Iterator[tuple[Rollout, dict[str, Tensor], Streams[State, Carry]]]:
    """From iteration `first` to the end of the run: take an unroll, learn from it, yield the transitions `[T, B]`, the
    metrics of the last update (empty before there is one) and where the streams stand. `seed` decides which windows
    meet in a mini-batch."""
    learner.set_clock(clock_of(source, first))
    for iteration in range(first + 1, num_iterations(source) + 1):
        transitions, streams = player.play()
        metrics: dict[str, Tensor] = {}
        if iteration >= first_update(source):
            now = clock_of(source, iteration - 1)
            parts = mini_batches(source, transitions, learner.num_learners, iteration, seed)
            for updates, part in enumerate(parts, now.updates):
                learner.set_clock(now._replace(updates=updates))
                metrics = learner.update(part)
        learner.set_clock(clock_of(source, iteration))
        player.learned()
        yield transitions, metrics, streams


def mini_batches(
    source: SourceConfig, transitions: Rollout, num_learners: int, iteration: int, seed: int
) -> Iterator[Rollout]:
    """What is learned from, one update after the other: in each of `source.num_updates_per_train_iter` sweeps the
    unroll `[T, L * N]` is cut into windows of `source.mini_batch_length` steps, and these are drawn without replacement
    in batches of `source.mini_batch_size` for each learner. All learners draw the same numbers of their own windows, so
    that learner k does not depend on the others."""
    for sweep in range(source.num_updates_per_train_iter):
        if not source.mini_batch_length and not source.mini_batch_size:
            yield transitions
            continue
        length = source.mini_batch_length or len(transitions.obs)
        windows = Rollout(*(_windows(column, length, num_learners) for column in transitions))
        num_windows, device = windows.obs.shape[2], transitions.obs.device
        key = mix(mix(torch.tensor(seed, device=device), iteration), sweep)
        order = integers(key.expand(num_windows), torch.arange(num_windows, device=device), 1 << 30).argsort()
        for chosen in order.split(source.mini_batch_size or num_windows):
            yield Rollout(*(column[:, :, chosen].flatten(1) for column in windows))


def _windows(column: Tensor, length: int, num_learners: int) -> Tensor:
    """`[T, L * N] -> [length, L, W]` with the W = T / length * N windows of each learner."""
    cut = column.unflatten(0, (-1, length)).unflatten(2, (num_learners, -1))  # [T / length, length, L, N]
    return cut.permute(1, 2, 0, 3).flatten(2)
