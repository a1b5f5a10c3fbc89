"""Base class of tensor environments: randomness, the clock and the auto-reset, written once. B streams.

The rules of a finite world are where episodes start and what an action can lead to (`outcomes`); play and exact
expectations both follow from them. Its state is one integer per stream, `state_index`; that of a `VectorEnv`, in the
extension vectors, is n numbers, and its rule is `move`.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from icrl.config.modules import registrar
from icrl.config.options import Name, Options, option, refuse
from icrl.contracts import Step
from icrl.envs import WORLDS, make_env
from icrl.randomness import integers, mix, uniform
from icrl.spaces import EnvSpec

EXPERT = "expert, sees the task"  # in tables and plots
NAME = "rules of the world; the preset `env=` sets all of this group"
TASK_VISIBLE = "observations end with the numbers of the task: a world for experts"
_OUTCOMES = 1 << 40  # added to the episode number, so that outcomes and starts use different random numbers


class EnvConfig(Options):
    """Options of every world; each world adds its own."""

    unplayable: ClassVar[str] = ""  # why nothing can be played in the world, and what to do about it; "" if it can

    name: str = option("", NAME)
    variant: Name = option("dark_room", "label of the preset, used in run names")
    max_episode_steps: int = option(20, "env steps after which an episode is truncated", ge=1, le=10000)

    @classmethod
    def modules_in(cls, values: Mapping[str, Any]) -> dict[str, str]:
        """Modules of the user's own that the `values` of these options name, dotted names or paths, by `KEY=VALUE`."""
        return {}

    def fingerprint(self, tasks: list[list[float]]) -> list[str]:
        """Identity of `tasks` in the world of these options, see `TensorEnv.fingerprint`."""
        with closing(make_env(self)) as env:
            return env.fingerprint(torch.tensor(tasks))


def check_playable(config: EnvConfig) -> None:
    """Raise `ConfigError` if nothing can be played in the world of `config`."""
    refuse(config.unplayable, f"env={config.name}: {config.unplayable}")


def world(name: str, options: type[EnvConfig]) -> Callable[[Any], Any]:
    """Decorator of the class of a world that `env=name` chooses; `options` is the class of its options. Raises
    `ConfigError` if another world has this name."""
    return registrar("world", name, WORLDS, options)


class State(NamedTuple):
    """State of B streams, `[B]` int64 each, except `task` `[B, task_dim]` and the inner state of a `VectorEnv`."""

    task: Tensor
    seed: Tensor  # determines all randomness of the stream
    episode: Tensor  # episodes finished so far
    inner: Tensor  # state of the world itself: an integer; of a `VectorEnv` numbers, [B, n] float32
    timestep: Tensor  # steps since the last reset


class Outcomes(NamedTuple):
    """The K possible outcomes of an action, `[..., K]` each."""

    probability: Tensor  # float
    state_index: Tensor  # int64
    reward_index: Tensor  # int64, an index into the spec's reward values
    terminated: Tensor  # bool


class MapView(NamedTuple):
    """Map of a task for pictures: a grid of cells, some of them marked."""

    rows: int
    columns: int
    goals: tuple[int, ...]  # the cells to reach, in this order


class TensorEnv:
    """World with a clock and auto-reset; see `contracts.Env`. A subclass sets `spec`, `task_columns` and `starts`, and
    gives `all_tasks`, `outcomes`, `label`, `map_view` for pictures, and `optimal_action` unless it sets
    `has_planner = False`. All else has defaults."""

    spec: EnvSpec
    task_columns: tuple[str, ...]  # meaning of the numbers of a task; they are cells if the world is a room
    starts: Tensor  # states where an episode may start, all equally likely
    goal_cell_name: str = "goal"  # meaning of `goal_cell`
    has_planner: bool = True  # whether `optimal_action` is known, and in a finite world `outcomes`
    best_name: str = "optimum"  # in tables and plots, of play by `optimal_action`

    @property
    def is_exact(self) -> bool:
        """True if expectations of episodes can be computed."""
        return self.has_planner and self.spec.is_discrete and not self.spec.action_mask

    @property
    def num_states(self) -> int:
        return self.spec.num_obs

    def all_tasks(self) -> Tensor:
        """Every task, `[num_tasks, task_dim]` int64, or float32 in a `VectorEnv`."""
        raise NotImplementedError

    def outcomes(self, task: Tensor, state_index: Tensor, action: Tensor) -> Outcomes:
        """All possible outcomes; `task` is `[..., task_dim]`, the others broadcast to `[...]`."""
        raise NotImplementedError

    def observe(self, inner: Tensor) -> Tensor:
        """Observation of the inner states `[B, ...]`."""
        return inner

    def observation(self, state: State) -> Tensor:
        """Observation of states, `[B, *obs_shape]`."""
        return self.observe(state.inner)

    def optimal_action(self, state: State) -> Tensor:
        """Best action for states of any leading shape; see `EnvSpec.unknown_action`."""
        raise NotImplementedError

    def unsolvable(self, tasks: Tensor) -> Tensor | None:
        """Rules of `tasks` `[N, task_dim]` without any reward, as tasks; None if this world has no such tasks."""

    def family(self, side: int, corner: int, sizes: tuple[int, int], hidden: Tensor) -> "Family | None":
        """Rooms of other `sizes` in a grid of `side` cells that holds this world at row and column `corner`, without
        goals where the tasks `hidden` `[N, task_dim]` have theirs; None if this world has no such family."""

    def label(self, task: Tensor) -> str:
        """Name for the task `[task_dim]` that is fit for file names."""
        raise NotImplementedError

    def fingerprint(self, tasks: Tensor) -> list[str]:
        """Identity of each of `tasks` `[N, task_dim]`, also among worlds of one name with other options."""
        return [f"{self.spec.width}: {task}" for task in tasks.tolist()]

    def map_view(self, task: Tensor) -> MapView:
        """Map for pictures of the task `[task_dim]`."""
        raise NotImplementedError

    def cell(self, obs: Tensor, action: Tensor) -> Tensor:
        """Cell of the map for a stream that sees `obs` after `action` (-1: before its first); -1 is no cell."""
        obs = self.spec.plain(obs)
        return obs % self.spec.width**2 if self.spec.width else obs

    def goal_cell(self, tasks: Tensor) -> Tensor | None:
        """Cell that stands for each of `tasks` `[N, task_dim]` on a map, `[N]`; None if there is no map."""

    def to(self, device: torch.device | str) -> Self:
        """Move the tables of the rules to `device`."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value.to(device))
        return self

    def in_workers(self) -> "TensorEnv":
        """World in which stage one and trials play: itself, or where its options ask for that, a copy in worker
        processes, with the same steps. Close it too."""
        return self

    def close(self) -> None:
        """Release the resources of the environment, which cannot be used after; it may be called again."""

    def reset(self, tasks: Tensor, seeds: Tensor) -> tuple[State, Step]:
        """Start a stream for each row of `tasks` `[B, task_dim]`; see `contracts.Env`."""
        zero = torch.zeros_like(seeds)
        state = State(tasks, seeds, zero, self.start(tasks, seeds, zero), zero)
        obs = self.observation(state)
        return state, Step(obs, zero.float(), zero.bool(), zero.bool(), obs, zero, self.optimal_action(state))

    def start(self, task: Tensor, seed: Tensor, episode: Tensor) -> Tensor:
        """Inner state of streams `[B]` on `task` `[B, task_dim]` where an episode starts."""
        one = len(self.starts) == 1
        return self.starts.expand_as(seed) if one else self.starts[integers(seed, episode, len(self.starts))]

    def move(self, state: State, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Next inner state, reward, and whether the task ended, `[B]` each, drawn from the outcomes."""
        probability, *outcomes = self.outcomes(state.task, state.inner, action)
        if probability.shape[-1] > 1:
            noise = uniform(mix(state.seed, state.episode + _OUTCOMES), state.timestep)
            chosen = (probability.cumsum(-1)[..., :-1] <= noise[..., None]).sum(-1, keepdim=True)
            outcomes = [column.gather(-1, chosen) for column in outcomes]
        state_index, reward_index, terminated = (column[..., 0] for column in outcomes)
        return state_index, self.spec.reward_of(reward_index), terminated

    def next_episode(self, state: State, where: Tensor) -> State:
        """Start the next episode on the same task in the streams where `where` `[B]` is true."""
        episode = state.episode + where
        inner = choose_rows(where, self.start(state.task, state.seed, episode), state.inner)
        return State(state.task, state.seed, episode, inner, state.timestep.masked_fill(where, 0))

    def step(self, state: State, action: Tensor) -> tuple[State, Step]:
        """Advance every stream; streams that end restart at once (SAME_STEP); see `contracts.Env`."""
        inner, reward, terminated = self.move(state, action)
        timestep = state.timestep + 1
        truncated = timestep >= self.spec.max_episode_steps
        state = state._replace(inner=inner, timestep=timestep)
        final_obs = self.observation(state)
        state = self.next_episode(state, terminated | truncated)
        obs, best = self.observation(state), self.optimal_action(state)
        return state, Step(obs, reward, terminated, truncated, final_obs, state.timestep, best)


class Family(TensorEnv):
    """World that holds another one and further tasks like its own, for trials."""

    def translated(self, tasks: Tensor) -> Tensor:
        """`tasks` `[N, task_dim]` of the other world as tasks here."""
        raise NotImplementedError

    def draw(self, seeds: Tensor) -> Tensor:
        """A further task for each of `seeds` `[N]`."""
        raise NotImplementedError


def choose_rows(where: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Rows of `new` `[B, ...]` where `where` `[B]` is true, else those of `old`."""
    return torch.where(where.view(-1, *[1] * (new.dim() - 1)), new, old)


def certain(state_index: Tensor, reward_index: Tensor, terminated: Tensor) -> Outcomes:
    """The single outcome of a deterministic action, from fields of shapes that broadcast to `[...]`."""
    if not state_index.shape == reward_index.shape == terminated.shape:
        fields = torch.broadcast_tensors(state_index, reward_index, terminated)
        state_index, reward_index, terminated = fields
    one = torch.ones(1, device=state_index.device).expand(*state_index.shape, 1)
    return Outcomes(one, state_index[..., None], reward_index[..., None], terminated[..., None])


def look_up(table: Tensor, index: Tensor) -> Tensor:
    """`table[index]` for a flat table. Faster than indexing, and with a deterministic gradient: that of indexing
    depends on the order of threads."""
    return table.index_select(0, index.flatten()).view_as(index)
