"""Every stream a Gymnasium environment in a process of its own, behind the tensor environments' contract.

For environments that cannot be written as tensors, and to check the tensors against: the same tasks and seeds give the
same steps, bit for bit. It costs a trip to a process per stream and step, some 50 times the tensors' time. B streams.
"""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import wait
from typing import Any

import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from numpy.typing import NDArray
from torch import Tensor

from src.contracts import PipelineError, Step
from src.envs import make_env
from src.envs.base import State
from src.envs.gymnasium_face import SingleEnv
from src.processes import killed_at_the_end, without_signals
from src.schema import EnvConfig

# Torch's threads may hold locks when a process is forked, and the child then waits for them forever. A fork server has
# no threads, and with the big imports done in it 20 environments start in 2 to 3 s on 2 cores; without them, or with
# spawn, each one imports PyTorch by itself and it takes 20 s.
_CONTEXT = "forkserver"
_PRELOAD = ["torch", "gymnasium", "hydra", "src.envs.gymnasium_face"]
_TIMEOUT = 60.0  # seconds an environment may take for one step


class ProcessEnv:
    """What a process shows is all the parent sees, so it takes the observation for the place in its mirror of the
    `State`. Call `close` when done."""

    def __init__(self, config: EnvConfig, device: torch.device | str = "cpu") -> None:
        """The processes start with the first streams; what they show comes back on `device`."""
        self._rules = make_env(config, device)
        self.spec = self._rules.spec
        self._device = device
        self._make_single = partial(
            SingleEnv,
            size=config.size,
            random_start=config.random_start,
            terminate_on_goal=config.terminate_on_goal,
            max_episode_steps=config.max_episode_steps,
        )
        self._envs: AsyncVectorEnv[Any, Any] | None = None
        self._stands: State | None = None  # where the processes are

    def all_tasks(self) -> Tensor:
        return self._rules.all_tasks()

    def optimal_action(self, state: State) -> Tensor:
        return self._rules.optimal_action(state)

    def reset(self, tasks: Tensor, seeds: Tensor) -> tuple[State, Step]:
        """See `contracts.Env`."""
        with self._answering(len(seeds)) as envs:
            envs.set_attr("task", tasks.tolist())
            envs.reset_async(seed=[seed % 2**64 for seed in seeds.tolist()])
            shown, _ = envs.reset_wait(_TIMEOUT)
        obs, zero = self._tensor(shown), torch.zeros_like(seeds)
        self._stands = State(tasks, seeds, zero, obs, zero)
        return self._stands, Step(obs, zero, zero.bool(), zero.bool(), obs, zero)

    def step(self, state: State, action: Tensor) -> tuple[State, Step]:
        """See `contracts.Env`. Any `state` will do: where the processes are not there, they go there first."""
        with self._answering(len(action)) as envs:
            if state is not self._stands:
                envs.set_attr("stream", torch.cat([state.task, torch.stack(state[1:], dim=1)], dim=1).tolist())
            envs.step_async(action.cpu().numpy())
            shown, rewards, ends, cuts, infos = envs.step_wait(_TIMEOUT)
        last_shown = shown.copy()
        if "final_obs" in infos:
            ended = infos["_final_obs"]
            last_shown[ended] = infos["final_obs"][ended]
        obs, timestep = self._tensor(shown), self._tensor(infos["timestep"])
        terminated, truncated = self._tensor(ends), self._tensor(cuts)
        episode = state.episode + (terminated | truncated)
        self._stands = State(state.task, state.seed, episode, obs, timestep)
        reward = self._tensor(rewards).long()
        return self._stands, Step(obs, reward, terminated, truncated, self._tensor(last_shown), timestep)

    def close(self) -> None:
        """End the processes; twice is fine."""
        try:
            if self._envs is not None:
                self._envs.close()
        except (EOFError, ConnectionError):  # one of them is gone already
            self._kill()
        self._envs = None

    @contextmanager
    def _answering(self, num_streams: int) -> Iterator[AsyncVectorEnv[Any, Any]]:
        """One process for each stream; a `PipelineError`, and no process left, where one dies or does not answer."""
        try:
            if self._envs is None or self._envs.num_envs != num_streams:
                self.close()
                self._stands = None
                multiprocessing.get_context(_CONTEXT).set_forkserver_preload(_PRELOAD)
                with without_signals():  # they answer this process until it closes them
                    self._envs = AsyncVectorEnv(
                        [self._make_single] * num_streams,
                        shared_memory=False,  # an integer goes through the pipe, and no lock is lost with its process
                        context=_CONTEXT,
                        autoreset_mode=AutoresetMode.SAME_STEP,
                    )
                killed_at_the_end(self._envs.processes)
            yield self._envs
        except (EOFError, ConnectionError, multiprocessing.TimeoutError) as error:
            reason = self._failure()
            self._kill()
            raise PipelineError(f"{reason}; source.vectorization=tensor needs no processes") from error
        except BaseException:  # Ctrl-C too: an answer may be on its way, so they are no use any more
            self._kill()
            raise

    def _failure(self) -> str:
        """What became of the processes, in words."""
        if self._envs is None:
            return "the environment processes did not start"
        processes = self._envs.processes
        wait([process.sentinel for process in processes], timeout=1.0)  # a process is gone before its exit code is here
        died = [f"{i} (exit code {p.exitcode})" for i, p in enumerate(processes) if p.exitcode is not None]
        if died:
            return f"environment process {', '.join(died)} died"
        return f"an environment gave no answer in {_TIMEOUT:g} s"

    def _kill(self) -> None:
        """End the processes without asking them."""
        if self._envs is not None:
            for process in self._envs.processes:
                process.kill()
                process.join()
            self._envs.closed = True  # its own close() would wait for answers
        self._envs = None

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._device)
