"""Asynchronous unrolls: a separate process plays while this one learns.

The result does not depend on timing. With q = `source.unroll_queue_size`, unroll i (from 0) is played by the learners
as they were after max(0, i - q) iterations, and is requested as soon as these are done. A request includes the state of
the learners if it is another than that of the request before it. Checkpoints contain the states that later unrolls
need, so a resumed run is bit-identical.
"""

from __future__ import annotations

import copy
import io
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import active_children, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from icrl.app.root import Config
from icrl.contracts import PipelineError, Rollout, Step
from icrl.envs import make_env
from icrl.envs.core import State
from icrl.envs.rollout import Streams
from icrl.extensions.parallel.children import end_with_parent, killed_at_the_end, without_signals
from icrl.extensions.parallel.worker import load_again, loaded
from icrl.randomness import Noise
from icrl.sources.collect import UnrollWorker, make_learners
from icrl.sources.learners import Learner
from icrl.sources.options import SourceConfig, clock_of, num_iterations

_PATIENCE = 10.0  # seconds that the process and its environments have to end by themselves
_CPU = torch.device("cpu")
_SPAWN = get_context("forkserver")  # torch has threads, whose locks a fork would copy; a fork server has none
_here: dict[str, Any] = {}  # in the process: the connection to the trainer and the player

Arrays = list[list[NDArray[Any]]]  # fields of named tuples; each tensor would need a descriptor
Answer = tuple[Arrays, dict[str, NDArray[Any]]]  # transitions, states and steps; columns that the policy computed


def version_of(source: SourceConfig, unroll: int) -> int:
    """Number of iterations after which the learners have the state that plays `unroll` (from 0)."""
    return max(0, unroll - source.unroll_queue_size)


def set_up(trainer: Connection, modules: list[str] | None) -> None:
    """Set up the process in which `AsyncUnrollWorker` plays until `trainer` closes its end, with what the `modules`
    register, or (if `modules` is None) the thread."""
    _here["trainer"] = trainer
    if modules is not None:
        end_with_parent()  # even during a step of an environment
        load_again(modules)
        torch.set_num_threads(1)
        Finalize(None, _end, exitpriority=1)


class AsyncUnrollWorker(UnrollWorker):
    """Worker in a separate process, which starts with the first `play` and ignores signals; `in_thread` of this process
    the same unrolls start at once. `play` raises a `PipelineError` if the process died, or else the error raised
    there."""

    def __init__(
        self,
        config: Config,
        learner: Learner,
        streams: Streams[State, Any],
        noise: Noise,
        first: int,
        in_thread: bool = False,
    ) -> None:
        """Continue with `streams` after `first` iterations; unless `first` is 0, call `load_state_dict` next."""
        self._config, self._learner, self._streams, self._noise, self._done = config, learner, streams, noise, first
        self._versions = {first: _playing_state(learner)}  # needed later, by iterations done
        self._ours, self._theirs = _SPAWN.Pipe()  # not an event, which could block once its waiter is killed
        self._in_thread = in_thread
        self._pool: Executor | None = None
        self._requests: deque[Future[Answer]] = deque()
        self._targets: dict[str, Tensor] = {}  # of the last unroll
        self.processes: list[BaseProcess] = []
        self._kill: Callable[[], object] = lambda: None  # once there are processes, it kills them

    def play(self) -> tuple[Rollout, Streams[State, Any]]:
        pool = self._pool or self._start()
        try:
            if not self._requests:  # the process died after it had played all that was requested
                raise BrokenExecutor
            answer, targets = self._requests.popleft().result()
        except BrokenExecutor as error:
            self._kill()  # else the pool may wait for ever for a process that lives
            pool.shutdown()  # its thread alone may wait for the process, or the exit code can be lost
            died = f"the process that collects unrolls died (exit code {self.processes[0].exitcode})"
            raise PipelineError(f"{died}. Run the same command again, or with source.async_unroll=false") from error
        device = self._streams.step.obs.device
        transitions, state, step = (_tensors(fields, device) for fields in answer)
        self._targets = {name: torch.from_numpy(column).to(device) for name, column in targets.items()}
        self._streams = Streams(type(self._streams.state)(*state), Step(*step), self._streams.carry)
        return Rollout(*transitions), self._streams

    def targets(self, rollout: Rollout) -> dict[str, Tensor]:
        return self._targets

    def parameters_changed(self) -> None:
        source = self._config.source
        self._done += 1
        self._versions[self._done] = _playing_state(self._learner)
        for old in [done for done in self._versions if done < version_of(source, self._done)]:
            del self._versions[old]
        with suppress(BrokenExecutor):  # `play` raises
            self._request(self._done + source.unroll_queue_size)

    def state_dict(self) -> dict[str, Any]:
        return {"versions": dict(self._versions)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._versions = dict(state["versions"])

    def close(self) -> None:
        if self._pool is None:
            return
        self._ours.close()
        for request in self._requests:
            request.cancel()
        self._pool.shutdown(wait=not self.processes)  # a thread ends with its unroll; a process may hang
        self._pool = None
        for process in self.processes:
            process.join(_PATIENCE)
        self._kill()

    def _start(self) -> Executor:
        source, before = self._config.source, active_children()
        tasks = self._streams.state.task[:: source.num_learners * source.num_envs]
        given = [tasks, self._noise.seeds], self._streams.state, self._streams.step
        start = [_arrays(fields) for fields in given]
        if self._in_thread:
            pool = ThreadPoolExecutor(1, initializer=set_up, initargs=(self._theirs, None))
        else:
            pool = ProcessPoolExecutor(1, _SPAWN, set_up, (self._theirs, loaded()))
        self._pool = pool
        with without_signals():
            self._request(self._done, (self._config, start))
        self.processes = [process for process in active_children() if process not in before]
        self._kill = killed_at_the_end(self.processes)
        for unroll in range(self._done + 1, self._done + source.unroll_queue_size + 1):
            self._request(unroll)
        return pool

    def _request(self, unroll: int, start: tuple[Config, Arrays] | None = None) -> None:
        """Request `unroll`, if it is part of the run. `start` is sent with the first request."""
        source, buffer = self._config.source, io.BytesIO()
        if self._pool is None or unroll >= num_iterations(source):
            return
        version = version_of(source, unroll)
        if start or version != version_of(source, unroll - 1):
            torch.save(self._versions[version], buffer)
        self._requests.append(self._pool.submit(_play, unroll, buffer.getvalue(), start))


class _Player:
    """Learners and environments in the process; also a policy, which stops when the trainer closes its end."""

    def __init__(self, config: Config, start: Arrays, first: int) -> None:
        (tasks, seeds), state, step = (_tensors(fields, _CPU) for fields in start)
        self.source, self.env = config.source, make_env(config.env).in_workers()
        self.learner, fresh, _ = make_learners(config, self.env, tasks, _CPU)
        self.initial_carry, self.targets = self.learner.initial_carry, self.learner.targets
        streams = Streams(type(fresh.state)(*state), Step(*step), fresh.carry)
        self.worker = UnrollWorker(self.source, self.env, self, streams, Noise(seeds), first)

    def act(self, carry: Any, step: Step, noise: Tensor) -> tuple[Tensor, Any]:
        """Action of the learners."""
        if _here["trainer"].poll():
            raise EOFError  # the trainer ended or closed its end
        return self.learner.act(carry, step, noise)


def _play(unroll: int, state: bytes, start: tuple[Config, Arrays] | None) -> Answer:
    """Play `unroll` in the process, as learners with the `state`, or the same as before if it is empty."""
    if start:
        _here["player"] = _Player(*start, unroll)
    player = _here["player"]
    if state:
        player.learner.load_state_dict(torch.load(io.BytesIO(state), weights_only=True, map_location=_CPU))
    player.learner.set_clock(clock_of(player.source, unroll))
    transitions, streams = player.worker.play()
    targets = {name: column.cpu().numpy() for name, column in player.worker.targets(transitions).items()}
    return [_arrays(fields) for fields in (transitions, streams.state, streams.step)], targets


def _end() -> None:
    if "player" in _here:
        _here["player"].env.close()
    for child in active_children():  # environments that failed to start; they block SIGTERM
        child.kill()


def _playing_state(learner: Learner) -> dict[str, Any]:
    """Copy of the state that `act` and `targets` depend on: all but the optimizer."""
    return copy.deepcopy({name: part for name, part in learner.state_dict().items() if name != "optimizer"})


def _arrays(fields: Iterable[Tensor]) -> list[NDArray[Any]]:
    return [field.cpu().numpy() for field in fields]


def _tensors(arrays: list[NDArray[Any]], device: torch.device) -> list[Tensor]:
    return [torch.from_numpy(array).to(device) for array in arrays]
