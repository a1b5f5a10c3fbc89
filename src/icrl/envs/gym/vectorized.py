"""Every stream a Gymnasium environment of its own, behind the tensor environments' contract. B streams.

An environment is a `gymnasium.Env` whose attribute `task` is the row of `all_tasks` that a seeded reset starts on, and
whose attribute `stream` is set to go to any state: all that the fields of the state hold of that stream, in one list. A
reset without a seed starts the next episode of the stream. What it cannot do it says as `info["error"]`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from gymnasium import Env
from numpy.typing import NDArray
from torch import Tensor

from icrl.contracts import ConfigError, EnvSpec, PipelineError, Step
from icrl.envs.core import TensorEnv

Begin = Callable[[Tensor, Tensor, Tensor], Any]  # (tasks [B, task_dim], seeds [B], obs [B]) -> state
Follow = Callable[[Any, Tensor, Tensor, Tensor], Any]  # (state, action, obs, ended, [B] each) -> next state
Start = Callable[[int], "Envs"]  # so many environments


class Shown(NamedTuple):
    """What a step of all environments shows, `[B]` each: `obs` is of the next episode where one ended."""

    obs: NDArray[np.int64]
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    final_obs: NDArray[np.int64]


class Envs(Protocol):
    """B environments, each of which is reset in the step that ends its episode."""

    num_envs: int

    def reset(self, tasks: NDArray[np.int64], seeds: NDArray[np.int64]) -> NDArray[np.int64]:
        """Start every stream anew, on tasks `[B, task_dim]`; returns what they show, `[B]`."""
        ...

    def step(self, actions: NDArray[np.int64], streams: NDArray[np.int64] | None) -> Shown:
        """Act, `[B]`, after going to the states `streams` `[B, ...]`, if there are any."""
        ...

    def close(self, terminate: bool = False) -> None:
        """End them; with `terminate`, without asking what may not answer any more."""
        ...


class SerialEnvs:
    """`Envs` in this process, one after the other. Raises `PipelineError` for what one of them cannot do."""

    def __init__(self, envs: Sequence[Any], before_each: Callable[[], object] = lambda: None) -> None:
        """`before_each` is called before each environment's turn."""
        self.num_envs, self._envs, self._before_each = len(envs), envs, before_each

    def reset(self, tasks: NDArray[np.int64], seeds: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `Envs`."""
        shown = []
        for env, task, seed in zip(self._envs, tasks.tolist(), seeds.tolist(), strict=True):
            self._before_each()
            env.task = task
            shown.append(_reset(env, seed % 2**64))  # Gymnasium takes none below 0
        return np.array(shown, np.int64)

    def step(self, actions: NDArray[np.int64], streams: NDArray[np.int64] | None) -> Shown:
        """See `Envs`."""
        rows = []
        for number, (env, action) in enumerate(zip(self._envs, actions, strict=True)):
            self._before_each()
            if streams is not None:
                env.stream = streams[number].tolist()
            final_obs, reward, terminated, truncated, info = env.step(action)
            _check(info)
            obs = _reset(env) if terminated or truncated else final_obs
            rows.append((obs, reward, terminated, truncated, final_obs))
        obs, reward, terminated, truncated, final_obs = map(np.array, zip(*rows, strict=True))
        return Shown(obs, reward.astype(np.float64), terminated, truncated, final_obs)

    def close(self, terminate: bool = False) -> None:
        """See `Envs`."""
        for env in self._envs:
            env.close()


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
            shown = envs.reset(tasks.cpu().numpy(), seeds.cpu().numpy())
        obs, zero = torch.from_numpy(shown).to(seeds.device), torch.zeros_like(seeds)
        state = self._stands = self._begin(tasks, seeds, obs)
        return state, Step(obs, zero, zero.bool(), zero.bool(), obs, zero, self.optimal_action(state))

    def step(self, state: Any, action: Tensor) -> tuple[Any, Step]:
        """See `contracts.Env`. Any `state` will do: where the environments are not there, they go there first."""
        with self._envs_for(len(action)) as envs:
            streams = None
            if state is not self._stands:
                streams = torch.cat([field.reshape(len(action), -1) for field in state], dim=1).cpu().numpy()
            shown = envs.step(action.cpu().numpy(), streams)
            rewards = reward_indices(shown.reward, self.spec)
        obs, reward, terminated, truncated, final_obs = (
            torch.from_numpy(array).to(action.device) for array in (shown.obs, rewards, *shown[2:])
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


def _reset(env: Env[Any, Any], seed: int | None = None) -> Any:
    obs, info = env.reset(seed=seed)
    _check(info)
    return obs


def _check(info: dict[str, Any]) -> None:
    if "error" in info:
        raise PipelineError(info["error"])
