"""Streams in worker processes, many in each, behind the tensor environments' contract.

For environments that are slow, and to check the tensors against: the same tasks and seeds give the same steps, bit for
bit, whatever the number of workers. Every environment steps by itself: a tensor world is slower so by orders of
magnitude, the more the more environments there are (`python -m benchmarks.processes`).
"""

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from icrl.config.env_schema import EnvConfig
from icrl.contracts import PipelineError
from icrl.envs import make_env
from icrl.envs.gym.face import singles_of
from icrl.envs.gym.vectorized import SerialEnvs, Shown, VectorizedEnv
from icrl.envs.gym.world import GymnasiumEnv
from icrl.runs.processes import end_with_parent, killed_at_the_end, without_signals

# Torch's threads may hold locks when a process is forked, and the child then waits for them forever. A fork server has
# no threads, and does the big imports once for all workers.
_CONTEXT = "forkserver"
_PRELOAD = ["torch", "gymnasium", "hydra", "icrl.envs.gym.face"]
_TIMEOUT = 60.0  # seconds an environment may take for one step
_START = 600.0  # seconds a worker may take to start, on a busy machine
_BUSY = 0.2  # seconds between two signs of life of a worker
_PATIENCE = 5.0  # seconds for a worker to end by itself

MakeMany = Callable[[int], Sequence[Any]]  # so many environments


class ProcessEnv(VectorizedEnv):
    """The environments of any world in worker processes. Call `close` when done."""

    def __init__(self, config: EnvConfig, num_workers: int = 0, device: torch.device | str = "cpu") -> None:
        """The workers, of which 0 means one for each core, start with the first streams."""
        rules = make_env(config, device)
        if isinstance(rules, GymnasiumEnv):
            super().__init__(rules, rules.begin, rules.follow, partial(Processes, rules.make_streams, num_workers))
            return
        # An observation may hide what a place is, so that the rules themselves must say where a stream stands.
        super().__init__(
            rules,
            lambda tasks, seeds, obs: rules.reset(tasks, seeds)[0],
            lambda state, action, obs, ended: rules.step(state, action)[0],
            partial(Processes, partial(singles_of, config), num_workers),
        )


class Processes:
    """`Envs` in worker processes, each with an equal share of them in order. Raises a `PipelineError` where the system
    refuses workers, or one of them dies, has no memory left or does not answer in time; they can only be closed then,
    with `terminate`."""

    def __init__(self, make_many: MakeMany, num_workers: int, num_envs: int) -> None:
        self.num_envs = num_envs
        self.processes: list[BaseProcess] = []
        self._connections: list[Connection] = []
        shares = np.array_split(np.arange(num_envs), min(num_workers or _num_cores(), num_envs))
        self._cuts = np.cumsum([len(share) for share in shares])[:-1]
        try:
            with _starting(len(shares)), without_signals():  # they answer this process until it closes them
                for share in shares:
                    self._start(make_many, len(share))
            self._answers(_START)
        except BaseException:
            self.close(terminate=True)
            raise
        killed_at_the_end(self.processes)

    def reset(self, tasks: NDArray[np.int64], seeds: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `Envs`."""
        self._tell("reset", self._dealt(tasks), self._dealt(seeds))
        return np.concatenate(self._answers(_TIMEOUT))

    def step(self, actions: NDArray[np.int64], streams: NDArray[np.int64] | None) -> Shown:
        """See `Envs`."""
        places = self._dealt(streams) if streams is not None else [None] * len(self.processes)
        self._tell("step", self._dealt(actions), places)
        return Shown(*map(np.concatenate, zip(*self._answers(_TIMEOUT), strict=True)))

    def close(self, terminate: bool = False) -> None:
        """See `Envs`."""
        for connection in self._connections:
            connection.close()  # which the workers notice
        deadline = time.monotonic() + (0.0 if terminate else _PATIENCE)
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.join()

    def _start(self, make_many: MakeMany, num_envs: int) -> None:
        context = multiprocessing.get_context(_CONTEXT)
        context.set_forkserver_preload(_PRELOAD)
        ours, theirs = context.Pipe()
        self._connections.append(ours)
        with closing(theirs):
            process = context.Process(target=_serve, args=(theirs, make_many, num_envs), daemon=True)
            process.start()
        self.processes.append(process)

    def _dealt(self, column: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        return np.split(column, self._cuts)

    def _tell(self, order: str, *shares: Sequence[Any]) -> None:
        """Send every worker its share of each argument."""
        with self._answering():
            for connection, *arguments in zip(self._connections, *shares, strict=True):
                connection.send((order, *arguments))

    def _answers(self, timeout: float) -> list[Any]:
        """What every worker has to say, in order; `timeout` is between two signs of life."""
        with self._answering():
            return [_answer(connection, timeout) for connection in self._connections]

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, ConnectionError, TimeoutError) as error:
            wait([process.sentinel for process in self.processes], timeout=1.0)  # one is gone before its exit code
            died = [f"{i} (exit code {p.exitcode})" for i, p in enumerate(self.processes) if p.exitcode is not None]
            fate = str(error)
            if died:
                fate = (
                    f"environment process {', '.join(died)} died: fewer, with source.num_workers, may be granted more"
                )
            raise PipelineError(f"{fate}; source.vectorization=tensor needs no processes") from error


def _answer(connection: Connection, timeout: float) -> Any:
    while connection.poll(timeout):
        if isinstance(answer := connection.recv(), PipelineError):
            raise answer
        if answer is not None:
            return answer
    raise TimeoutError(f"an environment gave no answer in {timeout:g} s")


def _num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


@contextmanager
def _starting(num_workers: int) -> Iterator[None]:
    """Say in one line what the system refuses."""
    try:
        yield
    except (OSError, EOFError, MemoryError) as error:  # the fork server tells by its end of what it was refused
        reason = f" ({' '.join(str(error).split())})" if isinstance(error, OSError) else ""
        raise PipelineError(
            f"the system refuses {num_workers} environment processes{reason}: give a smaller source.num_workers, "
            "raise the limits of processes and files (ulimit -u, ulimit -n), or use source.vectorization=tensor, "
            "which needs none"
        ) from error


def _serve(connection: Connection, make_many: MakeMany, num_envs: int) -> None:
    """What a worker does, until its connection is closed: None is a sign of life, all else an answer."""
    end_with_parent(1)
    torch.set_num_threads(1)
    due = 0.0

    def show_life() -> None:
        nonlocal due
        if time.monotonic() > due:
            connection.send(None)
            due = time.monotonic() + _BUSY

    try:
        with closing(SerialEnvs(make_many(num_envs), show_life)) as envs:
            orders = {"reset": envs.reset, "step": envs.step}
            connection.send(())  # it has started
            while True:
                order, *arguments = connection.recv()
                connection.send(orders[order](*arguments))
    except (EOFError, ConnectionError):
        pass
    except PipelineError as error:
        connection.send(error)
    except MemoryError:
        connection.send(
            PipelineError(
                f"no memory is left for the {num_envs} environments of a process: give fewer with source.num_learners "
                "and source.num_envs, or use source.vectorization=tensor"
            )
        )
