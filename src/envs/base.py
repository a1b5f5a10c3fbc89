"""What every tensor environment shares: the clock and the auto-reset, written once.

B streams. An environment gives its rules (`start`, `move`, `observe`); a state of the world is one integer a stream.
"""

from typing import NamedTuple, Self

import torch
from torch import Tensor

from src.contracts import EnvSpec, Step


class State(NamedTuple):
    """`[B]` int64 each, but for `task` `[B, task_dim]`."""

    task: Tensor
    seed: Tensor  # decides the stream's random starts
    episode: Tensor  # episodes finished so far
    place: Tensor  # the world's state as an integer
    timestep: Tensor  # steps since the last reset


class TensorEnv:
    """Rules plus clock plus auto-reset. Subclasses set `spec` and give the five methods that raise here."""

    spec: EnvSpec

    def all_tasks(self) -> Tensor:
        raise NotImplementedError

    def start(self, task: Tensor, seed: Tensor, episode: Tensor) -> Tensor:
        """The place `[B]` where an episode starts."""
        raise NotImplementedError

    def move(self, task: Tensor, place: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Next place, reward (int64) and whether the task ended (bool), `[B]` each."""
        raise NotImplementedError

    def observe(self, place: Tensor) -> Tensor:
        raise NotImplementedError

    @property
    def fixed_start(self) -> int | None:
        """The observation every episode starts with; None where starts vary."""
        raise NotImplementedError

    def optimal_action(self, state: State) -> Tensor:
        raise NotImplementedError

    def to(self, device: torch.device | str) -> Self:
        """Move the tables of the rules to `device`, in place."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value.to(device))
        return self

    def reset(self, tasks: Tensor, seeds: Tensor) -> tuple[State, Step]:
        """Start a stream for each row of `tasks` `[B, task_dim]`; see `contracts.Env`."""
        zero = torch.zeros_like(seeds)
        state = State(tasks, seeds, zero, self.start(tasks, seeds, zero), zero)
        obs = self.observe(state.place)
        return state, Step(obs, zero, zero.bool(), zero.bool(), obs, zero)

    def next_episode(self, state: State, where: Tensor) -> State:
        """Start the next episode on the same task in the streams where `where` `[B]` is true."""
        episode = state.episode + where
        place = torch.where(where, self.start(state.task, state.seed, episode), state.place)
        return State(state.task, state.seed, episode, place, state.timestep.masked_fill(where, 0))

    def step(self, state: State, action: Tensor) -> tuple[State, Step]:
        """Advance every stream; streams that end restart at once (SAME_STEP); see `contracts.Env`."""
        place, reward, terminated = self.move(state.task, state.place, action)
        timestep = state.timestep + 1
        truncated = timestep >= self.spec.max_episode_steps
        final_obs = self.observe(place)
        state = self.next_episode(state._replace(place=place, timestep=timestep), terminated | truncated)
        return state, Step(self.observe(state.place), reward, terminated, truncated, final_obs, state.timestep)
