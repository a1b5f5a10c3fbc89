"""A goal that moves in mid-stream, and rewards at the goal of another task: how a policy takes back what it learned.

G tasks, S streams per task, B = G * S streams, E episodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from icrl.contracts import Policy, Rollout, Step
from icrl.envs.core import State, TensorEnv
from icrl.envs.rooms import DarkRoom
from icrl.evaluation.in_context import Adaptation
from icrl.evaluation.protocol import MISLEADING, MOVED
from icrl.evaluation.scripted.explorers import Explorer
from icrl.evaluation.scripted.rooms import RoomSearcher
from icrl.rl.statistics import Floats


class MovedGoal:
    """World in which each stream changes to another task after its first `num_before` episodes; the context of a policy
    is kept. A task `[B, 2 * task_dim]` is a task of `env` beside the one that replaces it."""

    def __init__(self, env: TensorEnv, num_before: int) -> None:
        self._env, self._num_before, self.spec = env, num_before, env.spec

    def all_tasks(self) -> Tensor:
        """Every task beside the one after it."""
        return moving(self._env.all_tasks())

    def reset(self, tasks: Tensor, seeds: Tensor) -> tuple[State, Step]:
        state, step = self._env.reset(tasks.chunk(2, dim=1)[0], seeds)
        return state._replace(task=tasks), step

    def step(self, state: State, action: Tensor) -> tuple[State, Step]:
        after, step = self._env.step(self._now(state), action)
        after = after._replace(task=state.task)
        return after, step._replace(optimal_action=self.optimal_action(after))

    def optimal_action(self, state: State) -> Tensor:
        return self._env.optimal_action(self._now(state))

    def _now(self, state: State) -> State:
        """State with the task of its episode."""
        before, after = state.task.chunk(2, dim=1)
        return state._replace(task=torch.where((state.episode < self._num_before)[:, None], before, after))


def moving(tasks: Tensor) -> Tensor:
    """Tasks of `MovedGoal` `[G, 2 * task_dim]`, given `tasks` `[G, task_dim]`: the next one replaces each, the first
    the last."""
    return torch.cat([tasks, tasks.roll(-1, dims=0)], dim=1)


def can_move(env: TensorEnv, tasks: Tensor) -> bool:
    """True in a DarkRoom whose actions are not permuted, with more than one of `tasks` `[G, task_dim]`."""
    return isinstance(env, DarkRoom) and not env.permute_actions and len(tasks) > 1


def movers(policy: Policy[Any], learners: Mapping[str, Policy[Any]]) -> dict[str, Policy[Any]]:
    """Policies to play where the goal moves, by name: the model's, and those of `learners` that forget a goal where a
    move brings no reward."""
    forgetful = {name: one for name, one in learners.items() if isinstance(one, Explorer | RoomSearcher)}
    return {MOVED + name: one for name, one in ({"model": policy} | forgetful).items()}


class Carry(NamedTuple):
    """Carry of a policy, and the cell that pays in each stream, `[B]`."""

    carry: Any
    cell: Tensor


class Counterfactual:
    """Policy that reads the reward 1 at each move to another cell than the goal, and at no other move. Episodes still
    end at the goal. `cells` `[G]`: the paying cell of each task; streams are ordered by task."""

    def __init__(self, policy: Policy[Any], cells: Tensor) -> None:
        self.policy, self._cells = policy, cells

    def initial_carry(self, num_streams: int) -> Carry:
        cell = self._cells.repeat_interleave(num_streams // len(self._cells))
        return Carry(self.policy.initial_carry(num_streams), cell)

    def act(self, carry: Carry, step: Step, noise: Tensor) -> tuple[Tensor, Carry]:
        acted = (step.timestep > 0) | step.terminated | step.truncated
        paid = (acted & (step.final_obs == carry.cell)).float()
        action, inner = self.policy.act(carry.carry, step._replace(reward=paid), noise)
        return action, Carry(inner, carry.cell)


def other_goal_first(transitions: Rollout, goals: Tensor, others: Tensor, num_episodes: int) -> Floats:
    """1 for each of the first `num_episodes` = E episodes of each stream in which a move ended on the stream's cell in
    `others` before any move ended on its cell in `goals`, `[G]` each; else 0: `[G, S, E]`.

    `transitions` `[T, B]` of a room start with a reset."""
    num_steps, num_streams = transitions.obs.shape
    ended = (transitions.terminated | transitions.truncated).long()
    number = ended.cumsum(0) - ended
    slot = number.clamp(max=num_episodes) + torch.arange(num_streams, device=number.device) * (num_episodes + 1)
    steps = torch.arange(num_steps, device=number.device)[:, None].expand_as(number)

    def first_visit(cells: Tensor) -> Tensor:
        there = transitions.next_obs == cells.to(number.device).repeat_interleave(num_streams // len(cells))
        never = number.new_full((num_streams * (num_episodes + 1),), num_steps)
        return never.scatter_reduce(0, slot[there], steps[there], "amin")

    found = (first_visit(others) < first_visit(goals)).view(len(goals), -1, num_episodes + 1)
    return found[..., :-1].double().cpu().numpy()


def others_first(env: TensorEnv, tasks: Tensor, played: Mapping[str, tuple[Adaptation, Rollout]]) -> dict[str, Floats]:
    """Episodes of `played` on `tasks` `[G, task_dim]` that visit the goal that the context speaks of before their own,
    by policy, `[G, S, E]` each; empty unless goals can move (`can_move`).

    Where the goal moves, it is the first one, against the second. In the ablations that show another task's goal, it is
    that one."""
    if not can_move(env, tasks):
        return {}
    first, second = moving(tasks[:, :1]).T
    pairs = {name: (second, first) for name in played if name.startswith(MOVED)}
    pairs |= {name: (first, second) for name in MISLEADING if name in played}
    return {
        name: other_goal_first(played[name][1], goals, others, played[name][0].success.shape[-1])
        for name, (goals, others) in pairs.items()
    }
