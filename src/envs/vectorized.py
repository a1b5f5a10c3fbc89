"""Every stream a Gymnasium environment of its own, behind the tensor environments' contract. B streams.

An environment is a `gymnasium.Env` whose attribute `task` is the row of `all_tasks` that a seeded reset starts on, and
whose attribute `stream` is set to go to any state: all that the fields of the state hold of that stream, in one list. A
reset without a seed starts the next episode of the stream. What it cannot do it says as `info["error"]`, for an
exception may not survive the way from another process.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from numpy.typing import NDArray
from torch import Tensor

from src.contracts import ConfigError, EnvSpec, PipelineError, Step
from src.envs.base import TensorEnv

Begin = Callable[[Tensor, Tensor, Tensor], Any]  # (tasks [B, task_dim], seeds [B], obs [B]) -> state
Follow = Callable[[Any, Tensor, Tensor, Tensor], Any]  # (state, action, obs, ended, [B] each) -> next state
Envs = SyncVectorEnv[Any, Any] | AsyncVectorEnv[Any, Any]
Start = Callable[[int], Envs]  # so many environments, with auto-reset in the same step


class VectorizedEnv:
    """What environments show, and the states they must be in to have shown it. Call `close` when done."""

    def __init__(self, rules: TensorEnv, begin: Begin, follow: Follow, start: Start) -> None:
        """`rules` knows tasks and optimal actions. The environments start with the first streams."""
        self.spec = rules.spec
        self._rules, self._begin, self._follow, self._start = rules, begin, follow, start
        self._envs: Envs | None = None
        self._stands: Any = None  # the state that the environments are in

    def all_tasks(self) -> Tensor:
        return self._rules.all_tasks()

    def optimal_action(self, state: Any) -> Tensor:
        return self._rules.optimal_action(state)

    def reset(self, tasks: Tensor, seeds: Tensor) -> tuple[Any, Step]:
        """See `contracts.Env`."""
        with self._envs_for(len(seeds)) as envs:
            envs.set_attr("task", tasks.tolist())
            shown, infos = envs.reset(seed=[seed % 2**64 for seed in seeds.tolist()])
            _check(infos)
        obs, zero = torch.from_numpy(shown).to(seeds.device), torch.zeros_like(seeds)
        state = self._stands = self._begin(tasks, seeds, obs)
        return state, Step(obs, zero, zero.bool(), zero.bool(), obs, zero, self.optimal_action(state))

    def step(self, state: Any, action: Tensor) -> tuple[Any, Step]:
        """See `contracts.Env`. Any `state` will do: where the environments are not there, they go there first."""
        with self._envs_for(len(action)) as envs:
            if state is not self._stands:
                columns = [field.reshape(len(action), -1) for field in state]
                envs.set_attr("stream", torch.cat(columns, dim=1).tolist())
            shown, values, *ends, infos = envs.step(action.cpu().numpy())
            _check(infos)
            rewards = reward_indices(values, self.spec)
        last_shown = shown.copy()
        if "final_obs" in infos:
            last_shown[infos["_final_obs"]] = infos["final_obs"][infos["_final_obs"]]
        obs, final_obs, reward, terminated, truncated = (
            torch.from_numpy(array).to(action.device) for array in (shown, last_shown, rewards, *ends)
        )
        state = self._stands = self._follow(state, action, obs, terminated | truncated)
        best = self.optimal_action(state)
        return state, Step(obs, reward, terminated, truncated, final_obs, state.timestep, best)

    def close(self) -> None:
        """End the environments; twice is fine."""
        if self._envs is not None:
            self._envs.close()
        self._envs = self._stands = None

    @contextmanager
    def _envs_for(self, num_streams: int) -> Iterator[Envs]:
        """One environment for each stream; none is left after an exception."""
        try:
            if self._envs is None or self._envs.num_envs != num_streams:
                self.close()
                self._envs = self._start(num_streams)
            yield self._envs
        except BaseException:  # Ctrl-C too: an answer may be on its way, so they are no use any more
            if self._envs is not None:
                self._envs.close(terminate=True)
            self._envs = self._stands = None
            raise


def reward_indices(values: NDArray[np.float64], spec: EnvSpec) -> NDArray[np.int64]:
    """Rewards as indices into `spec.reward_values`, of one shape. Raises `ConfigError` for one that is not there."""
    known = np.array(spec.reward_values)
    index = np.abs(values[..., None] - known).argmin(axis=-1)
    unknown = values[~np.isclose(values, known[index], rtol=1e-6, atol=1e-9)]  # float32 will do
    if unknown.size:
        raise ConfigError(f"env.reward_values={[*spec.reward_values]}: lacks {unknown[0]:g}, which is a reward too")
    return index


def _check(infos: dict[str, Any]) -> None:
    if "error" in infos:
        raise PipelineError(next(error for error in infos["error"] if error))
