"""Streams of Gymnasium environments in worker processes, many in each: the same steps as in one, bit for bit."""

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icrl.contracts import PipelineError, Step
from icrl.extensions.from_gymnasium.guard import SECONDS
from icrl.extensions.from_gymnasium.streams import GymnasiumStreams, PlayedState
from icrl.extensions.parallel.children import end_with_parent, killed_at_the_end, without_signals

# A fork of a process with threads may inherit a lock that nobody releases, and torch has threads. A fork server has
# none, and does the big imports once for all workers.
_CONTEXT = "forkserver"
_PRELOAD = ["torch", "gymnasium", "icrl.extensions.from_gymnasium.streams"]
_START_SECONDS = 600.0  # that a worker may take to start, on a busy machine
_ALIVE_SECONDS = 0.2  # between two signs of life of a worker
_CLOSE_SECONDS = 5.0  # for the workers to end by themselves


class WorkerStreams:
    """`GymnasiumStreams` with an equal share of the streams in each worker process. Call `close` when done.

    Raises `PipelineError` if a process is refused, dies, runs out of memory or does not answer in time. All workers end
    then, and the next call starts new ones."""

    def __init__(self, make: Callable[[], GymnasiumStreams], num_workers: int, timeout: float = SECONDS) -> None:
        """The workers start with the first streams, and `make` theirs."""
        self.step_seconds = 2 * timeout  # that one environment may take for a step; workers end most that hang
        self._make, self._num_workers = make, num_workers
        self.processes, self._connections = list[BaseProcess](), list[Connection]()
        self._shares: list[slice] = []
        self._num_streams = 0
        self._state: PlayedState | None = None  # the state that the workers are in

    def reset(self, tasks: Tensor, seeds: Tensor) -> tuple[PlayedState, Step]:
        return self._call("reset", tasks, seeds)

    def step(self, state: PlayedState, action: Tensor) -> tuple[PlayedState, Step]:
        """The workers are sent `state` unless they are in it."""
        return self._call("step", state, action)

    def close(self, terminate: bool = False) -> None:
        """End the workers, if there are any; with `terminate`, without waiting for them."""
        for connection in self._connections:
            connection.close()  # which the workers notice
        deadline = time.monotonic() + (0.0 if terminate else _CLOSE_SECONDS)
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.join()
        self.processes.clear()
        self._connections.clear()
        self._num_streams, self._state = 0, None

    def _call(self, method: str, first: Tensor | PlayedState, second: Tensor) -> tuple[PlayedState, Step]:
        """Call a method of all environments with `first` and `second` `[B, ...]`. The state after a step follows from
        it and is not sent back, because it holds all actions of an episode."""
        try:
            if self._num_streams != len(second):
                self.close()
                self._start(len(second))
            with self._failures():
                for connection, share in zip(self._connections, self._shares, strict=True):
                    given = None if first is self._state else _arrays(first, share)
                    connection.send((method, given, _arrays(second, share)))
                answers = [_answer(connection, self.step_seconds) for connection in self._connections]
            states, steps = zip(*answers, strict=True)
            step: Step = _tensors(steps, second.device)
            known = isinstance(first, PlayedState)
            state = first.after(second, step) if known else _tensors(states, second.device)
        except BaseException:  # after Ctrl-C too: an answer may be on its way, which nobody would read
            self.close(terminate=True)
            raise
        self._state = state
        return state, step

    def _start(self, num_streams: int) -> None:
        self._num_streams, number = num_streams, min(self._num_workers, num_streams)
        self._shares = [slice(num_streams * i // number, num_streams * (i + 1) // number) for i in range(number)]
        context = multiprocessing.get_context(_CONTEXT)
        context.set_forkserver_preload(_PRELOAD)
        try:
            with without_signals():  # this process answers signals, and closes the workers
                for share in self._shares:
                    ours, theirs = context.Pipe()
                    self._connections.append(ours)
                    with closing(theirs):
                        given = (theirs, self._make, share.stop - share.start)
                        process = context.Process(target=_serve, args=given, daemon=True)
                        process.start()
                    self.processes.append(process)
        except (OSError, EOFError, MemoryError) as error:  # the fork server just ends where it is refused something
            reason = f" ({' '.join(str(error).split())})" if isinstance(error, OSError) else ""
            hint = "raise the limits (ulimit -u, ulimit -n), or give env.num_workers=0, which needs none"
            message = f"the system refuses {number} environment processes{reason}: lower env.num_workers, {hint}"
            raise PipelineError(message) from error
        with self._failures():
            for connection in self._connections:
                _answer(connection, _START_SECONDS)
        killed_at_the_end(self.processes)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Errors of connections as one line that says which worker died."""
        try:
            yield
        except (EOFError, ConnectionError, TimeoutError) as error:
            wait([process.sentinel for process in self.processes], timeout=1.0)  # one is gone before its exit code
            died = [f"{i} (exit code {p.exitcode})" for i, p in enumerate(self.processes) if p.exitcode is not None]
            reason = f"environment process {', '.join(died)} died: lower env.num_workers to leave more memory to each"
            message = f"{reason if died else error}; env.num_workers=0 needs no processes"
            raise PipelineError(message) from error


def _serve(connection: Connection, make: Callable[[], GymnasiumStreams], num_streams: int) -> None:
    """Main function of a worker, until its connection is closed: None is a sign of life, all else an answer."""
    end_with_parent()
    torch.set_num_threads(1)
    due = 0.0

    def show_life() -> None:
        nonlocal due
        if time.monotonic() > due:
            connection.send(None)
            due = time.monotonic() + _ALIVE_SECONDS

    try:
        with closing(make()) as env:
            env.before_each = show_life  # called by environments that are stepped one after the other
            connection.send(())  # it has started
            state = None
            while True:
                method, first, second = connection.recv()
                given = state if first is None else _tensors([first])
                state, step = getattr(env, method)(given, _tensors([second]))
                connection.send((None if method == "step" else _arrays(state), _arrays(step)))
    except (EOFError, ConnectionError):
        pass
    except PipelineError as error:
        with suppress(ConnectionError):  # nobody waits for it
            connection.send(error)
    except MemoryError:
        hint = "lower source.num_learners or source.num_envs, or give env.num_workers=0"
        connection.send(PipelineError(f"no memory is left for the {num_streams} environments of a process: {hint}"))


def _answer(connection: Connection, timeout: float) -> Any:
    """Next answer of a worker; `timeout` seconds may pass between two signs of life."""
    while connection.poll(timeout):
        if isinstance(answer := connection.recv(), PipelineError):
            raise answer
        if answer is not None:
            return answer
    raise TimeoutError(f"an environment gave no answer in {timeout:g} s")


def _arrays(part: Any, share: slice = slice(None)) -> Any:
    """Streams `share` of a tensor, or of a named tuple of tensors, as arrays."""
    if isinstance(part, Tensor):
        return part[share].cpu().numpy()
    return type(part)(*(_arrays(field, share) for field in part))


def _tensors(parts: Sequence[Any], device: torch.device | str = "cpu") -> Any:
    """Inverse of `_arrays` for all shares of a tensor, or of a named tuple of tensors."""
    if isinstance(parts[0], np.ndarray):
        return torch.from_numpy(np.concatenate(parts)).to(device)
    return type(parts[0])(*(_tensors(shares, device) for shares in zip(*parts, strict=True)))
