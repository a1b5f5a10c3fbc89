"""Unrolls from a process of its own, which plays while this one learns.

It does not depend on timing. With q = `source.unroll_queue_size` and p = `source.unroll_parameter_update_period`,
unroll i (from 0) is played by the learners as they were after

    v(i) = p * floor(max(0, i - q) / p)

iterations, and not before i - q are done. This process tells of every iteration that is done, with what was learned
where p divides its number, and the other one reads such a message before each unroll after the q-th. So a run is the
same each time, and one that was interrupted goes on bit for bit: what was learned after v(i), for the unrolls i to
come, is part of the state.
"""

from __future__ import annotations

import copy
import io
import threading
import time
import traceback
from contextlib import ExitStack, closing, suppress
from multiprocessing import active_children, get_context
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from icrl.collection.collect import Learner, LocalUnrollWorker, UnrollWorker, make_learners
from icrl.collection.pace import clock_of, num_iterations
from icrl.config.training_schema import SourceConfig
from icrl.contracts import Env, PipelineError, Policy, Rollout, Step
from icrl.envs import make_env
from icrl.envs.core import State
from icrl.envs.gym.workers import ProcessEnv
from icrl.envs.rollout import Streams
from icrl.randomness import Noise
from icrl.runs.processes import end_with_parent, start_quietly

if TYPE_CHECKING:
    from icrl.config.root import Config

_PATIENCE = 10.0  # seconds for the process, and those of its environments, to end by themselves
_UNCHANGED = b""  # a message about an iteration that came with no transfer of what was learned
_CPU = torch.device("cpu")

Arrays = list[list[NDArray[Any]]]  # the fields of a `Rollout`, a `State` and a `Step`
Played = tuple[Rollout, Streams[State, tuple[()]]]


def load_policy(
    config: Config,
    env: Env[State],
    learner: Learner[tuple[()]],
    streams: Streams[State, tuple[()]],
    noise: Noise,
    first: int,
) -> UnrollWorker[tuple[()]]:
    """What plays for `collect` from iteration `first`, here or in a process of its own."""
    if config.source.async_unroll:
        return AsyncUnrollWorker(config, learner, streams, first)
    return LocalUnrollWorker(config.source, env, learner, streams, noise, first)


class AsyncUnrollWorker:
    """An `UnrollWorker` in a process of its own. It raises a `PipelineError` when that process dies, and what it raises
    as such an error there or, with its traceback, as a `RuntimeError`."""

    def __init__(
        self, config: Config, learner: Learner[tuple[()]], streams: Streams[State, tuple[()]], first: int
    ) -> None:
        """Goes on with `streams` after `first` iterations; where these are not 0, with the state of the player that
        was there. The process starts with the first `play`."""
        self._config, self._learner, self._streams, self._done = config, learner, streams, first
        self._versions = {first: copy.deepcopy(learner.state_dict())}  # by the iterations that were done
        self._worker: _Worker | None = None

    def play(self) -> Played:
        """See `UnrollWorker`."""
        if self._worker is None:
            self._worker = self._start()
        transitions, state, step = self._worker.take()
        device = self._streams.step.obs.device
        there = type(self._streams.state)(*_tensors(state, device))
        self._streams = Streams(there, Step(*_tensors(step, device)), self._streams.carry)
        return Rollout(*_tensors(transitions, device)), self._streams

    def learned(self) -> None:
        """See `UnrollWorker`."""
        self._done += 1
        if self._done % self._config.source.unroll_parameter_update_period == 0:
            self._versions[self._done] = copy.deepcopy(self._learner.state_dict())
        needed = version_of(self._config.source, self._done)
        self._versions = {done: state for done, state in self._versions.items() if done >= needed}
        if self._worker:
            self._worker.tell(self._news_of(self._done))

    def state_dict(self) -> dict[str, Any]:
        """What had been learned when, as far as unrolls to come need it."""
        return {"versions": dict(self._versions)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """To be called before the first `play`."""
        self._versions = dict(state["versions"])

    def close(self) -> None:
        """End the process and those of its environments; twice is fine."""
        if self._worker:
            self._worker.end()
        self._worker = None

    def _start(self) -> _Worker:
        """The process, with the messages that it would have read or be about to read by now."""
        source = self._config.source
        tasks = self._streams.state.task[:: source.num_learners * source.num_envs]
        worker = _Worker(self._config, tasks, self._streams, self._done)
        worker.tell(_packed(self._versions[version_of(source, self._done)]))
        for done in range(max(0, self._done - source.unroll_queue_size) + 1, self._done + 1):
            worker.tell(self._news_of(done))
        return worker

    def _news_of(self, done: int) -> bytes:
        """The message that so many iterations are done."""
        return _packed(self._versions[done]) if done in self._versions else _UNCHANGED


def version_of(source: SourceConfig, unroll: int) -> int:
    """How many iterations had been done when that was learned which `unroll` (from 0) acts on."""
    period = source.unroll_parameter_update_period
    return max(0, unroll - source.unroll_queue_size) // period * period


class _Worker:
    """The process, seen from here."""

    def __init__(self, config: Config, tasks: Tensor, streams: Streams[State, tuple[()]], first: int) -> None:
        context = get_context("spawn")  # torch's threads may hold locks when a process is forked
        self._connection, theirs = context.Pipe()
        stand = [_arrays(streams.state), _arrays(streams.step)]
        self._process = context.Process(
            target=_serve, args=(theirs, config, _arrays([tasks]), stand, first)
        )  # no daemon, for those may not have processes of their own
        self._kill = start_quietly(self._process)
        theirs.close()

    def tell(self, message: bytes) -> None:
        with suppress(OSError):  # it is dead: `take` says so
            self._connection.send_bytes(message)

    def take(self) -> Arrays:
        """The next unroll, waited for as long as the process lives."""
        try:
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join(_PATIENCE)
            died = f"the process that plays died (exit code {self._process.exitcode})"
            raise PipelineError(f"{died}; source.async_unroll=false needs none") from error
        if isinstance(answer, PipelineError):
            raise answer
        if isinstance(answer, str):
            raise RuntimeError(f"the process that plays failed:\n{answer}")
        return answer

    def end(self) -> None:
        self._connection.close()  # which it notices
        self._process.join(_PATIENCE)
        self._kill()
        self._process.join()


class _Paced:
    """A policy that lets at least `interval` seconds pass between two steps, and raises an `EOFError` when nobody wants
    them any more."""

    def __init__(self, policy: Policy[tuple[()]], interval: float, unwanted: threading.Event) -> None:
        self._policy, self._interval, self._unwanted = policy, interval, unwanted
        self._due = 0.0

    def initial_carry(self, num_streams: int) -> tuple[()]:
        return self._policy.initial_carry(num_streams)

    def act(self, carry: tuple[()], step: Step, noise: Tensor) -> tuple[Tensor, tuple[()]]:
        chosen = self._policy.act(carry, step, noise)
        if self._unwanted.wait(max(0.0, self._due - time.monotonic())):
            raise EOFError
        self._due = time.monotonic() + self._interval
        return chosen


class _Mail:
    """Messages to and from the training process, which never keep the player waiting."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.received: SimpleQueue[bytes] = SimpleQueue()
        self.to_send: SimpleQueue[Arrays | PipelineError | str] = SimpleQueue()
        self.unwanted = threading.Event()  # set when the training process is gone or has closed its end
        for work in (self._receive, self._send):
            threading.Thread(target=work, daemon=True).start()

    def _receive(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                self.received.put(self._connection.recv_bytes())
        self.unwanted.set()
        self.received.put(_UNCHANGED)  # for a player that waits

    def _send(self) -> None:
        with suppress(OSError):
            while True:
                self._connection.send(self.to_send.get())


def _serve(connection: Connection, config: Config, tasks: list[NDArray[Any]], stand: Arrays, first: int) -> None:
    """What the process does, until nobody wants it any more."""
    end_with_parent(1)  # in the middle of an environment's step too
    torch.set_num_threads(1)
    mail = _Mail(connection)
    try:
        _play(config, _tensors(tasks, _CPU)[0], stand, first, mail)
    except EOFError:
        pass
    except PipelineError as error:
        mail.to_send.put(error)
    except Exception:
        mail.to_send.put(traceback.format_exc())
    mail.unwanted.wait()
    for child in active_children():  # environments that did not even start in order; SIGTERM would be blocked there
        child.kill()


def _play(config: Config, tasks: Tensor, stand: Arrays, first: int, mail: _Mail) -> None:
    source = config.source
    with ExitStack() as stack:
        env: Env[State] = make_env(config.env)
        if source.vectorization == "process":
            env = stack.enter_context(closing(ProcessEnv(config.env, source.num_workers)))
        learner, fresh, noise = make_learners(config, env, tasks, _CPU)
        state, step = (_tensors(fields, _CPU) for fields in stand)
        streams = Streams(type(fresh.state)(*state), Step(*step), fresh.carry)
        policy = _Paced(learner, source.unroll_step_interval, mail.unwanted)
        player = LocalUnrollWorker(source, env, policy, streams, noise, first)
        for iteration in range(first, num_iterations(source)):
            if iteration == first or iteration > source.unroll_queue_size:
                message = mail.received.get()
                if mail.unwanted.is_set():
                    raise EOFError
                if message != _UNCHANGED:
                    learner.load_state_dict(torch.load(io.BytesIO(message), weights_only=True, map_location=_CPU))
            learner.set_clock(clock_of(source, iteration))
            transitions, streams = player.play()
            mail.to_send.put([_arrays(transitions), _arrays(streams.state), _arrays(streams.step)])


def _packed(state: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def _arrays(fields: tuple[Tensor, ...] | list[Tensor]) -> list[NDArray[Any]]:
    """Tensors would go through the pipe as shared memory, a file descriptor each."""
    return [field.cpu().numpy() for field in fields]


def _tensors(arrays: list[NDArray[Any]], device: torch.device) -> list[Tensor]:
    return [torch.from_numpy(array).to(device) for array in arrays]
