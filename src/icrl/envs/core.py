"""Base class of tensor environments: randomness, the clock and the auto-reset, written once. B streams.

A world gives its rules: where episodes start and what an action can lead to (`outcomes`). Play and the exact
expectations of `exact.py` both follow from them. The state of a world is one integer per stream, `state_index`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from icrl.config.options import Name, Options, option, refuse
from icrl.contracts import Step
from icrl.envs import OWN, WORLDS
from icrl.randomness import integers, mix, uniform
from icrl.spaces import EnvSpec

NAME = "rules of the world; the preset `env=` sets all of this group"
_OUTCOMES = 1 << 40  # added to the episode number, so that outcomes and starts use different random numbers


class EnvConfig(Options):
    """Options of every world; each world adds its own."""

    name: str = option("", NAME)
    variant: Name = option("dark_room", "label of the preset, used in run names")
    max_episode_steps: int = option(20, "env steps after which an episode is truncated", ge=1, le=10000)


def world(name: str, options: type[EnvConfig]) -> Callable[[Any], Any]:
    """Decorator of a class of the user's own that `env=name` stands for; `options` is the class of its options. Raises
    `ConfigError` if another world has this name."""

    def register(made: Any) -> Any:
        taken = name in WORLDS or OWN.get(name, made).__module__ != made.__module__
        refuse(taken, f"@world({name!r}) of {made.__module__}.{made.__name__}: there is another world of this name")
        made.options = options
        OWN[name] = made
        return made

    return register


class State(NamedTuple):
    """State of B streams, `[B]` int64 each, except `task` `[B, task_dim]`."""

    task: Tensor
    seed: Tensor  # determines all randomness of the stream
    episode: Tensor  # episodes finished so far
    state_index: Tensor  # the world's state as an integer
    timestep: Tensor  # steps since the last reset


class Outcomes(NamedTuple):
    """The K possible outcomes of an action, `[..., K]` each."""

    probability: Tensor  # float
    state_index: Tensor  # int64
    reward: Tensor  # int64, an index into the spec's reward values
    terminated: Tensor  # bool


class MapView(NamedTuple):
    """Map of a task for pictures: a grid of cells, some of them marked."""

    rows: int
    columns: int
    goals: tuple[int, ...]  # the cells to reach, in this order


class TensorEnv:
    """World with a clock and auto-reset; see `contracts.Env`. Subclasses set the attributes and fill the gaps."""

    spec: EnvSpec
    task_columns: tuple[str, ...]  # meaning of the numbers of a task; they are cells if the world is a room
    starts: Tensor  # states where an episode may start, all equally likely
    goal_cell_name: str = "goal"  # meaning of `goal_cell`
    has_planner: bool = True  # whether `outcomes` and `optimal_action` are known

    @property
    def num_states(self) -> int:
        return self.spec.num_obs

    def all_tasks(self) -> Tensor:
        """Every task, `[num_tasks, task_dim]` int64."""
        raise NotImplementedError

    def outcomes(self, task: Tensor, state_index: Tensor, action: Tensor) -> Outcomes:
        """All possible outcomes; `task` is `[..., task_dim]`, the others broadcast to `[...]`."""
        raise NotImplementedError

    def observe(self, state_index: Tensor) -> Tensor:
        return state_index

    def optimal_action(self, state: State) -> Tensor:
        """Best action for states of any leading shape; `spec.num_actions` if it is unknown."""
        raise NotImplementedError

    def unsolvable(self, tasks: Tensor) -> Tensor | None:
        """Rules of `tasks` `[N, task_dim]` without any reward, as tasks; None if this world has no such tasks."""

    def label(self, task: Tensor) -> str:
        """Name for the task `[task_dim]` that is fit for file names."""
        raise NotImplementedError

    def fingerprint(self, tasks: Tensor) -> list[str]:
        """Identity of each of `tasks` `[N, task_dim]`, also among worlds of one name with other options."""
        return [f"{self.spec.width}: {task}" for task in tasks.tolist()]

    def map_view(self, task: Tensor) -> MapView:
        """Map for pictures of the task `[task_dim]`."""
        raise NotImplementedError

    def pictures(self, task: Tensor, seed: int, episode: int, obs: Tensor, action: Tensor) -> list[Any]:
        """Pictures `[H, W, 3]` of an episode of the stream with `seed` of `task` `[task_dim]`, with its M + 1
        observations and M actions, drawn by the world itself; empty if it is drawn as a map. Raises `PipelineError` if
        the world cannot draw it."""
        return []

    def cell(self, obs: Tensor, action: Tensor) -> Tensor:
        """Cell of the map for a stream that sees `obs` after `action` (-1: before its first); -1 is no cell."""
        return obs % self.spec.width**2 if self.spec.width else obs

    def goal_cell(self, tasks: Tensor) -> Tensor | None:
        """Cell that stands for each of `tasks` `[N, task_dim]` on a map, `[N]`; None if there is no map."""

    def to(self, device: torch.device | str) -> Self:
        """Move the tables of the rules to `device`."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value.to(device))
        return self

    def close(self) -> None:
        """Release the resources of the environment, which cannot be used after."""

    def reset(self, tasks: Tensor, seeds: Tensor) -> tuple[State, Step]:
        """Start a stream for each row of `tasks` `[B, task_dim]`; see `contracts.Env`."""
        zero = torch.zeros_like(seeds)
        state = State(tasks, seeds, zero, self.start(seeds, zero), zero)
        obs = self.observe(state.state_index)
        return state, Step(obs, zero.float(), zero.bool(), zero.bool(), obs, zero, self.optimal_action(state))

    def start(self, seed: Tensor, episode: Tensor) -> Tensor:
        """State index `[B]` where an episode starts."""
        one = len(self.starts) == 1
        return self.starts.expand_as(seed) if one else self.starts[integers(seed, episode, len(self.starts))]

    def move(self, state: State, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Next state index, index of the reward, and whether the task ended, `[B]` each, drawn from the outcomes."""
        probability, *outcomes = self.outcomes(state.task, state.state_index, action)
        if probability.shape[-1] > 1:
            noise = uniform(mix(state.seed, state.episode + _OUTCOMES), state.timestep)
            chosen = (probability.cumsum(-1)[..., :-1] <= noise[..., None]).sum(-1, keepdim=True)
            outcomes = [column.gather(-1, chosen) for column in outcomes]
        state_index, reward, terminated = (column[..., 0] for column in outcomes)
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
        paid = self.spec.reward_of(reward)
        return state, Step(obs, paid, terminated, truncated, final_obs, state.timestep, best)


def certain(state_index: Tensor, reward: Tensor, terminated: Tensor) -> Outcomes:
    """The single outcome of a deterministic action, from fields of shapes that broadcast to `[...]`."""
    if not state_index.shape == reward.shape == terminated.shape:
        state_index, reward, terminated = torch.broadcast_tensors(state_index, reward, terminated)
    one = torch.ones(1, device=state_index.device).expand(*state_index.shape, 1)
    return Outcomes(one, state_index[..., None], reward[..., None], terminated[..., None])


def look_up(table: Tensor, index: Tensor) -> Tensor:
    """`table[index]` for a flat table. Faster than indexing, and with a deterministic gradient: that of indexing
    depends on the order of threads."""
    return table.index_select(0, index.flatten()).view_as(index)
