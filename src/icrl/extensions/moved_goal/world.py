"""World with a goal that moves in mid-stream. G tasks, B streams."""

import torch
from torch import Tensor

from icrl.contracts import Step
from icrl.envs.core import State, TensorEnv


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
