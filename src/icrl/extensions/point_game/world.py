"""Polyhedra game as a family of tasks: the learner plays one side, and a task hides who plays the other.

A task is the number of a fixed player of the other side. B streams, N = 8 rows for points, n = 4 coordinates, A
actions.

An observation is N * n + n + A numbers >= 0: the points in canonical order, one more than each coordinate and 0 where
there is no point, then flags of the coordinate that the agent chose last in this game, then flags of the legal actions.
As host the learner gets 1 with the move that ends the game, as agent 1 for each move that does not.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from icrl.contracts import Policy, Step
from icrl.envs.core import TensorEnv, world
from icrl.evaluation.references import searchers_in
from icrl.extensions.point_game.fixed_players import AGENTS, HOSTS, choose
from icrl.extensions.point_game.opponents import (
    DIMENSION,
    MAX_VALUE,
    NUM_POINTS,
    RANDOM,
    PointGameConfig,
    answers_of,
    opponents_of,
)
from icrl.extensions.point_game.rollout import PointGame, PointGameOptions
from icrl.extensions.point_game.rules import canonical, subset_of, subsets
from icrl.spaces import discrete_spec

_REFERENCES = {"host": ("zeillinger", "weak_spivakovsky"), "agent": ("first", "last")}  # the best fixed players


class GamesState(NamedTuple):
    """State of B games: the fields of `PointState`, with the task and the last answer."""

    task: Tensor  # [B, 1] int64
    seed: Tensor
    episode: Tensor
    timestep: Tensor
    points: Tensor
    subset: Tensor  # [B] int64: the host's, if the learner is the agent; else 0
    answer: Tensor  # [B] int64: the coordinate the agent chose last in this game, -1 before its first


@world("point_game", PointGameConfig)
class PointFamily(TensorEnv):
    """Point game with all opponents of `config`."""

    task_columns = ("opponent",)
    has_planner = False

    def __init__(self, config: PointGameConfig) -> None:
        """Raises `ConfigError` for an unknown opponent."""
        self.config = config
        self._is_host = config.role == "host"
        self.opponents = opponents_of(config)
        self._game = PointGame(PointGameOptions(DIMENSION, NUM_POINTS, MAX_VALUE, config.max_episode_steps, True))
        actions, success = (len(subsets(DIMENSION)), "end") if self._is_host else (DIMENSION, "survival")
        # A move at most doubles the sum over coordinates of the largest number.
        most = MAX_VALUE * DIMENSION << config.max_episode_steps
        sizes = (most + 2, actions, (0.0, 1.0), 0, config.max_episode_steps, success)
        self.spec = discrete_spec(*sizes, points=(NUM_POINTS, DIMENSION))
        self._is_random = torch.tensor([player in RANDOM for player in self.opponents])  # [P]
        self._choice = torch.stack([*map(answers_of, self.opponents)])  # [P, A]

    def all_tasks(self) -> Tensor:
        """Every task once: opponents that play alike are one task, so no held-out task is known."""
        tasks = torch.arange(len(self.opponents))[:, None]
        first = {play: row for row, play in reversed([*enumerate(self.fingerprint(tasks))])}
        return tasks[sorted(first.values())]

    def label(self, task: Tensor) -> str:
        return self.opponents[int(task[0])]

    def fingerprint(self, tasks: Tensor) -> list[str]:
        """Play of the opponent of each task: the same for two names of one player. Tasks that earlier versions recorded
        have two more numbers, always the same."""
        found = []
        for number in tasks[:, 0].tolist():
            answers = self._choice[number].tolist() if self._is_host else self.opponents[number]
            found.append(f"{self.config.role} " + ("random" if self._is_random[number] else f"{answers} 0.0"))
        return found

    def reset(self, tasks: Tensor, seeds: Tensor) -> tuple[Any, Step]:
        zero = torch.zeros_like(seeds)
        state = self._start(tasks, seeds, zero)
        obs = self._observe(state)
        unknown = self.spec.unknown_action(zero)
        return state, Step(obs, zero.float(), zero.bool(), zero.bool(), obs, zero, unknown)

    def step(self, state: Any, action: Tensor) -> tuple[Any, Step]:
        """Raises `ValueError` for an action that is not legal."""
        if not self._legal(state).gather(1, action[:, None]).all():
            raise ValueError("an action is not legal: see the last numbers of its observation")
        subset, axis = (action, self._answer(state, action)) if self._is_host else (state.subset, action)
        state, terminated, truncated = self._game.step(state, subset, axis)
        state = self._ask(state._replace(answer=axis))
        done = terminated | truncated
        obs = final_obs = self._observe(state)
        if done.any():
            fresh = self._start(state.task[done], state.seed[done], state.episode[done] + 1)
            state = GamesState(*(old.index_put((done,), new) for old, new in zip(state, fresh, strict=True)))
            obs = final_obs.index_put((done,), self._observe(fresh))
        reward = (terminated if self._is_host else ~terminated).float()
        unknown = torch.full_like(action, self.spec.num_actions)
        return state, Step(obs, reward, terminated, truncated, final_obs, state.timestep, unknown)

    def points_of(self, obs: Tensor) -> Tensor:
        """Positions `[..., N, n]` in observations `[..., K]`."""
        size = self.spec.points
        return obs[..., : size[0] * size[1]].unflatten(-1, size) - 1

    def _start(self, tasks: Tensor, seeds: Tensor, episode: Tensor) -> GamesState:
        """Start the games numbered `episode`."""
        zero = torch.zeros_like(seeds)
        return self._ask(GamesState(tasks, seeds, episode, zero, self._game.start(seeds, episode), zero, zero - 1))

    def _observe(self, state: GamesState) -> Tensor:
        points = canonical(state.points) + 1
        chosen = state.answer[:, None] == torch.arange(DIMENSION, device=points.device)
        return torch.cat([points.flatten(1), chosen, self._legal(state)], dim=1)

    def _legal(self, state: GamesState) -> Tensor:
        """Mask of the legal actions, `[B, A]` bool, whether or not the game is over."""
        every = state.task.new_ones(len(state.task), self.spec.num_actions, dtype=torch.bool)
        return every if self._is_host else subset_of(state.subset, DIMENSION)

    def _ask(self, state: GamesState) -> GamesState:
        """Let the opponents name their subsets, if the learner is the agent."""
        if self._is_host:
            return state
        subset = torch.zeros_like(state.seed)
        for number in state.task[:, 0].unique().tolist():
            where = state.task[:, 0] == number
            some = GamesState(*(column[where] for column in state))
            subset[where] = self._game.ask(HOSTS[self.opponents[number]], some).subset
        return state._replace(subset=subset)

    def _answer(self, state: GamesState, subset: Tensor) -> Tensor:
        """Coordinates `[B]` that the opponents answer, if the learner is the host."""
        players = state.task[:, 0]
        choice, is_random = self._choice[players, subset], self._is_random[players]

        def agent(points: Tensor, coords: Tensor, noise: Tensor) -> Tensor:
            return torch.where(is_random, choose(coords, noise), choice)

        return self._game.answer(agent, state, subset)


class FixedPlayer(NamedTuple):
    """Policy of a fixed player on the learner's side, which reads the position from the observation."""

    env: PointFamily
    name: str

    def initial_carry(self, num_streams: int) -> tuple[()]:
        return ()

    def act(self, carry: tuple[()], step: Step, noise: Tensor) -> tuple[Tensor, tuple[()]]:
        points, legal = self.env.points_of(step.obs), step.obs[:, -self.env.spec.num_actions :] > 0
        is_host = self.name in HOSTS
        return HOSTS[self.name](points, noise) if is_host else AGENTS[self.name](points, legal, noise), carry


@searchers_in.register
def _(env: PointFamily) -> dict[str, Policy[Any]]:
    """The best known fixed players by name."""
    return {name.replace("_", " ").title(): FixedPlayer(env, name) for name in _REFERENCES[env.config.role]}
