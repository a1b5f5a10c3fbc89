"""Worlds whose rules are tables, and plans in them by dynamic programming.

N tasks, S states, A actions, K outcomes, M steps an episode.
"""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from icrl.envs.core import Outcomes, State, TensorEnv

_EQUAL = 1e-9  # returns that differ by less are equal


class TableEnv(TensorEnv):
    """World whose rules are a table for each task; exact expectations come from these. The observation is the state.

    A task is the number of its table, `[B, 1]`. A subclass sets `spec`, `starts` and, by `set_rules`, the tables."""

    task_columns = ("task",)

    def set_rules(self, rules: Outcomes) -> None:
        """Take the tables `[N, S, A, K]` of all tasks, whose episodes are as long as `spec` now says."""
        self._probability, self._next_state, self._reward, self._terminated = rules
        self._plan_steps = self.spec.max_episode_steps

    @cached_property
    def _best(self) -> Tensor:
        """Actions `[N, M, S]` of `best_actions`, planned when one is first asked for: many programs ask for none."""
        rules = Outcomes(self._probability, self._next_state, self._reward, self._terminated)
        values = torch.tensor(self.spec.reward_values, dtype=torch.float64)
        return best_actions(rules, values, self._plan_steps)

    def __getstate__(self) -> dict[str, Any]:
        has_table = "_plan_steps" in vars(self)
        return vars(self) | ({"_best": self._best} if has_table else {})  # planned once for all that get a copy

    def all_tasks(self) -> Tensor:
        return torch.arange(len(self._probability))[:, None]

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


def best_actions(rules: Outcomes, reward_values: Tensor, num_steps: int) -> Tensor:
    """Actions `[N, M, S]` (int16) that maximise the return of the rest of an episode of `num_steps` = M; of those that
    do, one that ends it soonest. They are on the device of the `rules`, whose fields are `[N, S, A, K]`.

    Backward induction (Puterman, 1994, section 4.5), twice in one sweep: with k steps left,
    V_k(s) = max_a sum_j p_j (r_j + (1 - terminated_j) V_{k-1}(s_j)), and among the actions that attain it
    the least expected length L_k(s) = min_a 1 + sum_j p_j (1 - terminated_j) L_{k-1}(s_j)."""
    device = rules.probability.device
    rules, reward_values = Outcomes(*(field.cpu() for field in rules)), reward_values.cpu()  # the same on every device
    goes_on = rules.probability.double() * ~rules.terminated
    reward = (rules.probability * reward_values[rules.reward_index]).sum(dim=-1)  # [N, S, A]
    after = rules.state_index.flatten(1)
    value = length = torch.zeros(rules.state_index.shape[:2], dtype=torch.float64)  # [N, S]
    best: list[Tensor] = []
    for _ in range(num_steps):
        returns = reward + (goes_on * value.gather(1, after).view_as(goes_on)).sum(dim=-1)
        lengths = 1 + (goes_on * length.gather(1, after).view_as(goes_on)).sum(dim=-1)
        value = returns.amax(dim=-1)
        length, action = lengths.masked_fill(returns < value[..., None] - _EQUAL, torch.inf).min(dim=-1)
        best.append(action.to(torch.int16))
    return torch.stack(best[::-1], dim=1).to(device)


def same_tasks(rules: Outcomes, starts: Tensor) -> list[tuple[int, int]]:
    """Pairs of tasks, the earlier one first, with the same rules in all states that one can get to from the `starts`
    `[n]`. The fields of `rules` are `[N, S, A, K]`."""
    possible, after = rules.probability > 0, rules.state_index.flatten(1)
    reached = torch.zeros(rules.probability.shape[:2], dtype=torch.int8)
    before = reached.clone()
    reached[:, starts] = 1
    while not torch.equal(reached, before):
        goes_on = possible & ~rules.terminated & (reached > 0)[..., None, None]
        before, reached = reached, reached.scatter_reduce(1, after, goes_on.flatten(1).to(torch.int8), "amax")
    counts = possible & (reached > 0)[..., None, None]
    tables = torch.cat([field.double().masked_fill(~counts, -1).flatten(1) for field in rules], dim=1).numpy()
    first: dict[bytes, int] = {}
    earlier = [first.setdefault(table.tobytes(), task) for task, table in enumerate(tables)]
    return [(one, task) for task, one in enumerate(earlier) if one != task]
