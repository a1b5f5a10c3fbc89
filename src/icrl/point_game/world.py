"""The polyhedra game as a family of tasks: the learner plays one side, and a task hides who plays the other.

A task is a row (opponent, dimension, cloud): a fixed player of the other side, the number of coordinates of its games,
and where these start. B streams, N rows for points, n the largest dimension of all tasks, A actions.

An observation is N * n + n + A numbers >= 0: the points in canonical order, one more than each coordinate and 0 where
there is no point, then 1 for the coordinate that the agent chose last in this game and 0 for the others, then 1 for
each action that is legal and 0 for the others. So each side sees what the other does. A game of fewer coordinates than
n is played with all others 0 and never named, which changes nothing of it.

As host the learner gets 1 with the move that ends the game, as agent 1 for each move that does not.
"""

import re
from collections.abc import Callable
from itertools import permutations, product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from icrl.config.env_schema import PointGameConfig
from icrl.contracts import ConfigError, EnvSpec, Step
from icrl.envs.core import TensorEnv
from icrl.point_game.fixed_players import AGENTS, HOSTS, choose, random_subset
from icrl.point_game.rollout import PointGame, PointGameOptions, PointState
from icrl.point_game.rules import PADDING, canonical, subset_of, subsets
from icrl.randomness import mix, uniform

_ORDER, _TABLES, _MOST_TABLES = "order_", 7, 10_000  # _TABLES: the seed of all tables
_CHANCE = ("random", "random_subset")  # players that are nothing but noise
_FORM = re.compile(r"([^@]*)(?:@(1|0\.[0-9]*[1-9]))?")  # one way to write each noise
_TABLE = re.compile(r"(tables?)_(0|[1-9][0-9]{0,4})")
_MOST_ORDERED = 6  # coordinates, of which there are 720 orders
_AGENTS = "random, first, last, orders, order_01..., tables_100, table_0"
_ALMOST_ONE = 1 - 2**-24


class GamesState(NamedTuple):
    """Where B games stand."""

    task: Tensor  # [B, 3] int64
    seed: Tensor  # [B] int64: decides all that is random in the stream
    episode: Tensor  # [B] int64: games finished so far
    timestep: Tensor  # [B] int64: moves since the start of the game
    points: Tensor  # [B, N, n] int64
    subset: Tensor  # [B] int64: the host's, where the learner is the agent; else 0
    answer: Tensor  # [B] int64: the coordinate the agent chose last in this game, -1 before its first

    @property
    def game(self) -> PointState:
        return PointState(self.points, self.seed, self.episode, self.timestep)


class Opponent(NamedTuple):
    """A fixed player that plays at random with probability `noise`, a subset or a coordinate of one."""

    name: str  # as in the configuration, with groups written out
    player: str  # the same without its noise
    noise: float


class PointFamily(TensorEnv):
    """All opponents of `config` with all its dimensions and clouds."""

    task_columns = ("opponent", "dimension", "cloud")
    has_planner = False

    def __init__(self, config: PointGameConfig) -> None:
        """Raises `ConfigError` for opponents that there are not."""
        self._role, dimension = config.role, max(config.dimensions)
        rows = max(cloud["max_num_points"] for cloud in config.clouds)
        self.opponents = opponents_of(config)
        self._dimensions, self._clouds = sorted(config.dimensions), config.clouds
        clock = {"max_episode_steps": config.max_episode_steps, "reposition": True}
        self._games = {
            (size, number): PointGame(PointGameOptions(size, **cloud, **clock))
            for size in self._dimensions
            for number, cloud in enumerate(config.clouds)
        }
        self._game = self._games[dimension, 0]  # the rules are those of all
        actions = len(subsets(dimension)) if config.role == "host" else dimension
        success = "end" if config.role == "host" else "survival"
        sizes = (config.largest_coordinate + 2, actions, (0.0, 1.0), 0, config.max_episode_steps, success)
        self.spec = EnvSpec(*sizes, points=(rows, dimension))
        self._noise = torch.tensor([opponent.noise for opponent in self.opponents])  # [P]
        self._choice = torch.stack([_choices(opponent, dimension) for opponent in self.opponents])  # [P, A]
        beyond = torch.stack([torch.arange(dimension) >= size for size in range(dimension + 1)])
        self._inside = ~(subsets(dimension) & beyond[:, None]).any(-1)  # [n + 1, A]: subsets by dimension of the task

    def all_tasks(self) -> Tensor:
        """Each once: opponents that play alike in a dimension are one task, so that none is held out that is known."""
        columns = range(len(self.opponents)), self._dimensions, range(len(self._clouds))
        tasks = torch.tensor([*product(*columns)])
        first = {play: row for row, play in reversed([*enumerate(self.fingerprint(tasks))])}
        return tasks[sorted(first.values())]

    def label(self, task: Tensor) -> str:
        opponent, dimension, cloud = task.tolist()
        parts = [self.opponents[opponent].name.replace("@", "_noise_")]
        parts += [f"{dimension}d"] if len(self._dimensions) > 1 else []
        return "-".join(parts + ([f"cloud_{cloud}"] if len(self._clouds) > 1 else []))

    def fingerprint(self, tasks: Tensor) -> list[str]:
        """How the opponent plays, in which dimension, from where: two names of one player are one."""
        return [
            f"{self._role} {self._play(opponent, dimension)} {dimension} {sorted(self._clouds[cloud].items())}"
            for opponent, dimension, cloud in tasks.tolist()
        ]

    def _play(self, number: int, dimension: int) -> str:
        opponent = self.opponents[number]
        if self._role == "agent" and dimension == 2:
            return "the only subset"
        if opponent.noise == 1:
            return "random"
        if self._role == "host":
            return f"{self._choice[number, self._inside[dimension]].tolist()} {opponent.noise}"
        return f"{opponent.player} {opponent.noise}"

    def reset(self, tasks: Tensor, seeds: Tensor) -> tuple[Any, Step]:
        zero = torch.zeros_like(seeds)
        state = self._asked(GamesState(tasks, seeds, zero, zero, self._starts(tasks, seeds, zero), zero, zero - 1))
        obs = self._seen(state)
        return state, Step(obs, zero, zero.bool(), zero.bool(), obs, zero, self._nobody_knows(zero))

    def step(self, state: Any, action: Tensor) -> tuple[Any, Step]:
        """Raises `ValueError` for an action that is not legal."""
        if not self._legal(state).gather(1, action[:, None]).all():
            raise ValueError("an action is not legal: see the last numbers of its observation")
        subset, axis = (action, self._answer(state, action)) if self._role == "host" else (state.subset, action)
        game, ends = self._game.step(state.game, subset, axis)
        state = self._asked(state._replace(points=game.points, timestep=game.timestep, answer=axis))
        final_obs, done = self._seen(state), ends.terminated | ends.truncated
        reward = (ends.terminated if self._role == "host" else ~ends.terminated).long()
        obs = final_obs
        if done.any():
            state = self._next_episode(state, done)
            obs = final_obs.clone()
            obs[done] = self._seen(_part(state, done))
        step = Step(obs, reward, ends.terminated, ends.truncated, final_obs, state.timestep, self._nobody_knows(action))
        return state, step

    def points_of(self, obs: Tensor) -> Tensor:
        """The positions `[..., N, n]` that observations `[..., K]` show."""
        rows, dimension = self.spec.points
        return obs[..., : rows * dimension].unflatten(-1, (rows, dimension)) - 1

    def _next_episode(self, state: GamesState, where: Tensor) -> GamesState:
        ended = _part(state, where)
        episode = ended.episode + 1
        zero = torch.zeros_like(episode)
        points = self._starts(ended.task, ended.seed, episode)
        fresh = ended._replace(episode=episode, timestep=zero, points=points, answer=zero - 1)
        fresh = self._asked(fresh)
        columns = [old.clone() for old in state]
        for column, new in zip(columns, fresh, strict=True):
            column[where] = new
        return GamesState(*columns)

    def _starts(self, tasks: Tensor, seeds: Tensor, episode: Tensor) -> Tensor:
        """First positions `[B, N, n]`, of each dimension and cloud by itself."""
        points = torch.full((len(tasks), *self.spec.points), PADDING, device=tasks.device)
        for (dimension, cloud), game in self._games.items():
            where = ((tasks[:, 1] == dimension) & (tasks[:, 2] == cloud)).nonzero()[:, 0]
            if len(where):
                start = game.start(seeds[where], episode[where])
                start = torch.nn.functional.pad(start, (0, self.spec.points[1] - dimension))
                start[start[..., 0] == PADDING] = PADDING
                points[where, : start.shape[1]] = start
        return points

    def _seen(self, state: GamesState) -> Tensor:
        points = canonical(state.points) + 1
        chosen = state.answer[:, None] == torch.arange(self.spec.points[1], device=points.device)
        return torch.cat([points.flatten(1), chosen, self._legal(state)], dim=1)

    def _legal(self, state: GamesState) -> Tensor:
        """`[B, A]` bool: what may be named or answered now, whether or not the game is over."""
        if self._role == "host":
            return self._inside[state.task[:, 1]]
        return subset_of(state.subset, self.spec.points[1])

    def _asked(self, state: GamesState) -> GamesState:
        """With the subsets that the hosts name, where the learner is the agent."""
        if self._role == "host":
            return state
        subset = torch.zeros_like(state.seed)
        players = state.task[:, 0]
        for dimension in self._dimensions:
            for number, opponent in enumerate(self.opponents):
                where = ((players == number) & (state.task[:, 1] == dimension)).nonzero()[:, 0]
                if len(where):
                    game = state.game._replace(points=state.points[..., :dimension])
                    asked = PointState(*(column[where] for column in game))
                    subset[where] = self._game.ask(_noisy_host(opponent), asked).subset
        return state._replace(subset=subset)

    def _answer(self, state: GamesState, subset: Tensor) -> Tensor:
        """The opponents' coordinates `[B]`, where the learner is the host."""
        players = state.task[:, 0]
        choice, chance = self._choice[players, subset], self._noise[players]

        def agent(points: Tensor, coords: Tensor, noise: Tensor) -> Tensor:
            return torch.where(noise < chance, choose(coords, _stretched(noise, chance)), choice)

        return self._game.answer(agent, state.game, subset)

    def _nobody_knows(self, like: Tensor) -> Tensor:
        return torch.full_like(like, self.spec.num_actions)


def opponents_of(config: PointGameConfig) -> list[Opponent]:
    """Those that `env.opponents` names. Raises `ConfigError` for what is none, and where one is named twice."""
    found: list[Opponent] = []
    for text in config.opponents:
        form = _FORM.fullmatch(text)
        name, chance = form.groups() if form else ("", None)
        names = _named(name, config.role, max(config.dimensions))
        if not names or (chance and name in _CHANCE):
            known = _AGENTS if config.role == "host" else ", ".join(HOSTS)
            raise ConfigError(
                f"env.opponents={config.opponents}: {text} must be one of {known}, with env.role={config.role}; @0.2 "
                "after one that is not random lets it play at random with probability 0.2 (no 0 at the end)"
            )
        noise = float(chance or 0)
        found += [Opponent(one + text[len(name) :], one, 1.0 if one in _CHANCE else noise) for one in names]
    if not found or len(set(found)) < len(found):
        raise ConfigError(f"env.opponents={config.opponents}: must be at least one, and none twice")
    return found


def _named(name: str, role: str, dimension: int) -> list[str]:
    """The players that `name` stands for; none where it is not known."""
    if role == "agent":
        return [name] if name in HOSTS else []
    table = _TABLE.fullmatch(name)
    if table and int(table[2]) <= _MOST_TABLES:
        return [name] if table[1] == "table" else [f"table_{number}" for number in range(int(table[2]))]
    digits = "".join(map(str, range(dimension)))
    if name == "orders" and dimension <= _MOST_ORDERED:
        return [_ORDER + "".join(order) for order in permutations(digits)]
    is_order = name.startswith(_ORDER) and sorted(name.removeprefix(_ORDER)) == list(digits)
    return [name] if name in AGENTS or is_order else []


def _choices(opponent: Opponent, dimension: int) -> Tensor:
    """What an agent answers to each subset, `[A]`; of hosts and of `random`, whose noise is 1, anything."""
    table = subsets(dimension)
    name, _, number = opponent.player.partition("_")
    if name == "table":
        return choose(table, uniform(mix(torch.tensor(_TABLES), int(number)), torch.arange(len(table))))
    order = list(map(int, number)) if name == "order" else list(range(dimension))
    rank = torch.tensor([order.index(coordinate) for coordinate in range(dimension)])
    rank = -rank if opponent.player == "last" else rank
    return rank.expand(len(table), -1).masked_fill(~table, dimension).argmin(1)


def _noisy_host(opponent: Opponent) -> Callable[[Tensor, Tensor], Tensor]:
    host, chance = HOSTS[opponent.player], torch.tensor(opponent.noise)

    def play(points: Tensor, noise: Tensor) -> Tensor:
        """Noise that does not make the move random is stretched, so that it is uniform again."""
        at_random = random_subset(points, _stretched(noise, chance))
        rest = ((noise - chance) / (1 - chance)).clamp(0, _ALMOST_ONE)
        return torch.where(noise < chance, at_random, host(points, rest)) if opponent.noise < 1 else at_random

    return play


def _stretched(noise: Tensor, chance: Tensor) -> Tensor:
    """Of noise below `chance`: uniform in [0, 1)."""
    return (noise / chance.clamp(min=1e-9)).clamp(max=_ALMOST_ONE)


def _part(state: GamesState, where: Tensor) -> GamesState:
    return GamesState(*(column[where] for column in state))
