"""What every tensor environment shares: chance, the clock and the auto-reset, written once.

B streams. An environment gives its rules: where episodes start and what an action can lead to (`outcomes`), from which
both play and the exact expectations of `exact.py` follow. A world's state is one integer per stream, `state_index`.
"""

from typing import NamedTuple, Self

import torch
from torch import Tensor

from icrl.contracts import EnvSpec, Step
from icrl.randomness import integers, mix, uniform

_CHANCE = 1 << 40  # added to the number of an episode, so that its outcomes have other random numbers than its start


class State(NamedTuple):
    """`[B]` int64 each, but for `task` `[B, task_dim]`."""

    task: Tensor
    seed: Tensor  # decides all that is random in the stream
    episode: Tensor  # episodes finished so far
    state_index: Tensor  # the world's state as an integer
    timestep: Tensor  # steps since the last reset


class Outcomes(NamedTuple):
    """The K things an action can lead to, `[..., K]` each."""

    probability: Tensor  # float
    state_index: Tensor  # int64
    reward: Tensor  # int64, an index into the reward values
    terminated: Tensor  # bool


class MapView(NamedTuple):
    """How pictures show a task: a grid of cells, some of them marked."""

    rows: int
    columns: int
    goals: tuple[int, ...]  # the cells to reach, in this order


class TensorEnv:
    """Rules plus clock plus auto-reset. Subclasses set the attributes below and give the methods that raise here."""

    spec: EnvSpec
    task_columns: tuple[str, ...]  # what the numbers of a task are; cells where the world is a room
    starts: Tensor  # state indices where an episode may start, all equally likely
    goal_cell_name: str = "goal"  # what `goal_cell` gives
    has_planner: bool = True  # whether `outcomes` and `optimal_action` are known

    @property
    def num_states(self) -> int:
        return self.spec.num_obs

    def all_tasks(self) -> Tensor:
        raise NotImplementedError

    def outcomes(self, task: Tensor, state_index: Tensor, action: Tensor) -> Outcomes:
        """All that can happen; `task` `[..., task_dim]`, the others of shapes that broadcast to `[...]`."""
        raise NotImplementedError

    def observe(self, state_index: Tensor) -> Tensor:
        return state_index

    def optimal_action(self, state: State) -> Tensor:
        """A best action for states of any leading shape; `spec.num_actions` where nobody knows."""
        raise NotImplementedError

    def label(self, task: Tensor) -> str:
        """A name for the task `[task_dim]`, fit for files."""
        raise NotImplementedError

    def fingerprint(self, tasks: Tensor) -> list[str]:
        """What each of `tasks` `[N, task_dim]` is, whatever its number: the same for the same task in a world with
        other options, if the name of the world is the same. Here: its cells, in a room of this size."""
        return [f"{self.spec.width}: {task}" for task in tasks.tolist()]

    def map_view(self, task: Tensor) -> MapView:
        """How pictures show the task `[task_dim]`."""
        raise NotImplementedError

    def cell(self, obs: Tensor, action: Tensor) -> Tensor:
        """The cell of the view a stream is on that sees `obs` and did `action` (-1: nothing yet); -1 is nowhere."""
        return obs % self.spec.width**2 if self.spec.width else obs

    def goal_cell(self, tasks: Tensor) -> Tensor | None:
        """The cell that stands for each of the tasks `[N, task_dim]` on a map, `[N]`; None where there is no map."""
        return None

    def to(self, device: torch.device | str) -> Self:
        """Move the tables of the rules to `device`."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value.to(device))
        return self

    def close(self) -> None:
        """Let go of what the environment holds; there is no use of it after."""

    def reset(self, tasks: Tensor, seeds: Tensor) -> tuple[State, Step]:
        """Start a stream for each row of `tasks` `[B, task_dim]`; see `contracts.Env`."""
        zero = torch.zeros_like(seeds)
        state = State(tasks, seeds, zero, self.start(seeds, zero), zero)
        obs = self.observe(state.state_index)
        return state, Step(obs, zero, zero.bool(), zero.bool(), obs, zero, self.optimal_action(state))

    def start(self, seed: Tensor, episode: Tensor) -> Tensor:
        """State index `[B]` where an episode starts."""
        if len(self.starts) == 1:
            return self.starts.expand_as(seed)
        return self.starts[integers(seed, episode, len(self.starts))]

    def move(self, state: State, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Next state index, reward and whether the task ended, `[B]` each: one of the outcomes, by chance."""
        probability, *outcomes = self.outcomes(state.task, state.state_index, action)
        if probability.shape[-1] == 1:
            state_index, reward, terminated = (column[..., 0] for column in outcomes)
            return state_index, reward, terminated
        luck = uniform(mix(state.seed, state.episode + _CHANCE), state.timestep)
        chosen = (probability.cumsum(-1)[..., :-1] <= luck[..., None]).sum(-1, keepdim=True)
        state_index, reward, terminated = (column.gather(-1, chosen)[..., 0] for column in outcomes)
        return state_index, reward, terminated

    def next_episode(self, state: State, where: Tensor) -> State:
        """Start the next episode on the same task in the streams where `where` `[B]` is true."""
        episode = state.episode + where
        state_index = torch.where(where, self.start(state.seed, episode), state.state_index)
        return State(state.task, state.seed, episode, state_index, state.timestep.masked_fill(where, 0))

    def step(self, state: State, action: Tensor) -> tuple[State, Step]:
        """Advance every stream; streams that end restart at once (SAME_STEP); see `contracts.Env`."""
        state_index, reward, terminated = self.move(state, action)
        timestep = state.timestep + 1
        truncated = timestep >= self.spec.max_episode_steps
        final_obs = self.observe(state_index)
        state = self.next_episode(state._replace(state_index=state_index, timestep=timestep), terminated | truncated)
        obs, best = self.observe(state.state_index), self.optimal_action(state)
        return state, Step(obs, reward, terminated, truncated, final_obs, state.timestep, best)


def certain(state_index: Tensor, reward: Tensor, terminated: Tensor) -> Outcomes:
    """The one thing that can happen, of shapes that broadcast to `[...]`."""
    state_index, reward, terminated = torch.broadcast_tensors(state_index, reward, terminated)
    one = torch.ones(1, device=state_index.device).expand(*state_index.shape, 1)
    return Outcomes(one, state_index[..., None], reward[..., None], terminated[..., None])
