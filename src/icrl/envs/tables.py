"""Worlds whose rules are a table for each task. N tasks, S states, A actions, K outcomes.

A task is the number of its table, `[B, 1]`, and the observation is the state. The planner and all exact expectations
come from the tables (`exact.py`).
"""

import torch
from torch import Tensor

from icrl.envs.core import Outcomes, State, TensorEnv
from icrl.envs.exact import best_actions


class TableEnv(TensorEnv):
    """World of tables; a subclass sets `spec`, `starts` and, by `set_rules`, the tables."""

    task_columns = ("task",)

    def set_rules(self, rules: Outcomes) -> None:
        """Take the tables `[N, S, A, K]` of all tasks, and plan for each."""
        self._probability, self._next_state, self._reward, self._terminated = rules
        values = torch.tensor(self.spec.reward_values, dtype=torch.float64)
        self._best = best_actions(rules, values, self.spec.max_episode_steps)

    def all_tasks(self) -> Tensor:
        return torch.arange(len(self._best))[:, None]

    def outcomes(self, task: Tensor, state_index: Tensor, action: Tensor) -> Outcomes:
        """Outcomes in the table; if there are fewer than K, the others have probability 0."""
        where = (task[..., 0], state_index, action)
        return Outcomes(self._probability[where], self._next_state[where], self._reward[where], self._terminated[where])

    def optimal_action(self, state: State) -> Tensor:
        """Best action for the steps that are left, from the table; see `best_actions`. Under a clock of Gymnasium that
        runs longer than the plan, its last step."""
        timestep = state.timestep.clamp(max=self._best.shape[1] - 1)
        return self._best[state.task[..., 0], timestep, state.inner].long()

    def label(self, task: Tensor) -> str:
        return f"task_{int(task[0])}"

    def rewarded(self, task: Tensor) -> tuple[int, ...]:
        """States of the task `[1]` that pay when they are entered."""
        number = int(task[0])
        pays = torch.tensor(self.spec.reward_values, device=self._reward.device)[self._reward[number]] > 0
        return tuple(self._next_state[number][pays & (self._probability[number] > 0)].unique().tolist())
