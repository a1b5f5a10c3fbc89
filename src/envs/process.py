"""Every stream in a process of its own, behind the tensor environments' contract.

For environments that are slow, and to check the tensors against: the same tasks and seeds give the same steps, bit for
bit. It costs a trip to a process per stream and step, some 50 times the tensors' time.
"""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import wait
from typing import Any

import torch
from gymnasium import Env
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from src.contracts import PipelineError
from src.env_schema import EnvConfig
from src.envs import make_env
from src.envs.gymnasium_env import GymnasiumEnv
from src.envs.gymnasium_face import single_of
from src.envs.vectorized import VectorizedEnv
from src.processes import killed_at_the_end, without_signals

# Torch's threads may hold locks when a process is forked, and the child then waits for them forever. A fork server has
# no threads, and with the big imports done in it 20 environments start in 2 to 3 s on 2 cores; without them, or with
# spawn, each one imports PyTorch by itself and it takes 20 s.
_CONTEXT = "forkserver"
_PRELOAD = ["torch", "gymnasium", "hydra", "src.envs.gymnasium_face"]
_TIMEOUT = 60.0  # seconds an environment may take for one step


class ProcessEnv(VectorizedEnv):
    """The environments of any world in processes. Call `close` when done."""

    def __init__(self, config: EnvConfig, device: torch.device | str = "cpu") -> None:
        """The processes start with the first streams."""
        rules = make_env(config, device)
        if isinstance(rules, GymnasiumEnv):
            super().__init__(rules, rules.begin, rules.follow, partial(Processes, rules.make_stream))
            return
        # An observation may hide what a place is, so that the rules themselves must say where a stream stands.
        super().__init__(
            rules,
            lambda tasks, seeds, obs: rules.reset(tasks, seeds)[0],
            lambda state, action, obs, ended: rules.step(state, action)[0],
            partial(Processes, partial(single_of, config)),
        )


class Processes(AsyncVectorEnv[Any, Any]):
    """Environments in processes. Raises a `PipelineError` where one dies or does not answer in time; they can only be
    closed then, with `terminate`."""

    def __init__(self, make_single: Callable[[], Env[Any, Any]], num_envs: int) -> None:
        multiprocessing.get_context(_CONTEXT).set_forkserver_preload(_PRELOAD)
        self.processes = []
        try:
            with self._answering(), without_signals():  # they answer this process until it closes them
                super().__init__(
                    [make_single] * num_envs,
                    shared_memory=False,  # an integer goes through the pipe, and no lock is lost with its process
                    context=_CONTEXT,
                    autoreset_mode=AutoresetMode.SAME_STEP,
                )
        except BaseException:
            self.close_extras(terminate=True)
            raise
        killed_at_the_end(self.processes)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        with self._answering():
            self.reset_async(seed=seed, options=options)
            return self.reset_wait(_TIMEOUT)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        with self._answering():
            self.step_async(actions)
            return self.step_wait(_TIMEOUT)

    def set_attr(self, name: str, values: Any) -> None:
        with self._answering():
            super().set_attr(name, values)

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """End the processes; with `terminate`, or where one of them is gone already, without asking them."""
        try:
            if not terminate:
                super().close_extras(timeout)
        except (EOFError, ConnectionError):
            terminate = True
        for process in self.processes if terminate else []:
            process.kill()
            process.join()

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, ConnectionError, multiprocessing.TimeoutError) as error:
            raise PipelineError(f"{self._failure()}; source.vectorization=tensor needs no processes") from error

    def _failure(self) -> str:
        """What became of the processes, in words."""
        wait([process.sentinel for process in self.processes], timeout=1.0)  # one is gone before its exit code is here
        died = [f"{i} (exit code {p.exitcode})" for i, p in enumerate(self.processes) if p.exitcode is not None]
        if died:
            return f"environment process {', '.join(died)} died"
        return f"an environment gave no answer in {_TIMEOUT:g} s"
