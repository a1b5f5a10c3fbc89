"""References that learn nothing, random play and the planner: exact expectations, plans by dynamic programming, and the
two as policies. N tasks, S states, A actions, K outcomes, M steps an episode, B streams."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from gymnasium.spaces import Box, MultiDiscrete
from torch import Tensor

from icrl.contracts import Step
from icrl.envs.core import Outcomes, State, TensorEnv
from icrl.envs.rollout import is_success
from icrl.randomness import draw_possible, several
from icrl.spaces import EnvSpec

_EQUAL = 1e-9  # returns that differ by less are equal


class Expectation(NamedTuple):
    """Exact values of one episode, `[N]` float64 on the CPU each."""

    episode_return: Tensor
    success: Tensor
    steps_to_goal: Tensor  # steps until the success; without one, the length of the episode


def noisy_exact(env: TensorEnv, tasks: Tensor, noise: float, max_cells: int = 1 << 21) -> Expectation:
    """Expectation of the policy that takes a uniformly random action with probability `noise`, else the optimal action.
    At most `max_cells` numbers `[N, S, A, K]` are in memory at once."""
    first = tasks.new_zeros(1)
    num_outcomes = env.outcomes(tasks[:1], first, first).state_index.shape[-1]
    num_actions = env.spec.num_actions
    size = max(1, max_cells // (env.num_states * num_actions * num_outcomes))

    def noisy_policy(state: State) -> Tensor:
        uniform = torch.full((*state.inner.shape, num_actions), 1 / num_actions, dtype=torch.float64)
        if noise == 1.0:
            return uniform
        best = torch.nn.functional.one_hot(env.optimal_action(state).cpu(), num_actions).double()
        return best.lerp(uniform, noise)

    parts = [expectation(env, chunk, noisy_policy) for chunk in tasks.split(size)]
    return Expectation(*(torch.cat(part) for part in zip(*parts, strict=True)))


def expectation(env: TensorEnv, tasks: Tensor, policy: Callable[[State], Tensor]) -> Expectation:
    """Expectation of `policy` on `tasks` `[N, task_dim]`, by the flow of probability mass over states. `policy` maps
    states `[N, S]` to action probabilities `[N, S, A]`, and may depend on state and time step."""
    spec = env.spec
    shape = (len(tasks), env.num_states)
    state_index = torch.arange(env.num_states, device=tasks.device).expand(shape)
    zero = torch.zeros_like(state_index)
    state = State(tasks[:, None].expand(-1, env.num_states, -1), zero, zero, state_index, zero)
    actions = torch.arange(spec.num_actions, device=tasks.device)
    task = state.task[:, :, None].expand(-1, -1, spec.num_actions, -1)
    probability, after, reward, ends = (part.cpu() for part in env.outcomes(task, state_index[:, :, None], actions))
    value = torch.tensor(spec.reward_values, dtype=torch.float64)[reward]  # [N, S, A, K]
    mass = torch.zeros(shape, dtype=torch.float64)
    mass[:, env.starts.cpu()] = 1 / len(env.starts)
    start = pending = mass  # of episodes without a success so far
    total, success, steps = (torch.zeros(len(tasks), dtype=torch.float64) for _ in range(3))

    def chances(t: int) -> Tensor:
        return policy(state._replace(timestep=zero + t))[..., None] * probability

    for t in range(spec.max_episode_steps):
        now, chosen = state._replace(timestep=zero + t), chances(t)
        best = actions == env.optimal_action(now)[..., None]
        last = ends | (t + 1 == spec.max_episode_steps)
        # `_success_by_return` knows the return so far, which this flow does not.
        won = is_success(spec, value, ends, last, best.cpu()[..., None], value) & (spec.success != "return")
        flow, pending_flow = mass[..., None, None] * chosen, pending[..., None, None] * chosen
        total += (flow * value).sum(dim=(1, 2, 3))
        steps += pending.sum(dim=1)
        success += (pending_flow * won).sum(dim=(1, 2, 3))
        mass, pending = _next_mass(flow, after, ends), _next_mass(pending_flow, after, ends | won)
    if spec.success == "return":
        success = _success_by_return(spec, start, chances, after.expand_as(value), value, ends)
    return Expectation(total, success, steps)


def _success_by_return(
    spec: EnvSpec, mass: Tensor, chances: Callable[[int], Tensor], after: Tensor, value: Tensor, ends: Tensor
) -> Tensor:
    """Probability `[N]` that the return of an episode is at least `spec.success_return`, by the flow of the `mass`
    `[N, S]` of starts over E triples of task, state and return so far. `chances` of a time step are the probabilities
    `[N, S, A, K]` of action and outcome; `after`, `value` and `ends` are as in `expectation`."""
    success = torch.zeros(len(mass), dtype=torch.float64)
    task, place = mass.nonzero().unbind(1)
    mass, so_far = mass[task, place], torch.zeros(len(task), dtype=torch.float64)  # [E]
    for t in range(spec.max_episode_steps):
        flow = mass[:, None, None] * chances(t)[task, place]  # [E, A, K]
        total = so_far[:, None, None] + value[task, place]
        last = ends[task, place] | (t + 1 == spec.max_episode_steps)
        won = flow * is_success(spec, total, last, last, last, total)
        success.index_add_(0, task, won.sum(dim=(1, 2)))
        going = (flow > 0) & ~last
        columns = (task[:, None, None].expand_as(flow), after[task, place], total)
        triples = torch.stack([column[going].double() for column in columns], dim=1).round(decimals=6)
        triples, same = triples.unique(dim=0, return_inverse=True)
        mass = torch.zeros(len(triples), dtype=torch.float64).index_add_(0, same, flow[going])
        task, place, so_far = triples[:, 0].long(), triples[:, 1].long(), triples[:, 2]
    return success


def best_actions(rules: Outcomes, reward_values: Tensor, num_steps: int) -> Tensor:
    """Actions `[N, M, S]` (int16) that maximise the return of the rest of an episode of `num_steps` = M; of those that
    do, one that ends it soonest.

    The fields of `rules` are `[N, S, A, K]`. Backward induction (Puterman, 1994, section 4.5), twice in one sweep: with
    k steps left, V_k(s) = max_a sum_j p_j (r_j + (1 - terminated_j) V_{k-1}(s_j)), and among the actions that attain it
    the least expected length L_k(s) = min_a 1 + sum_j p_j (1 - terminated_j) L_{k-1}(s_j)."""
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
    return torch.stack(best[::-1], dim=1)


def _next_mass(flow: Tensor, after: Tensor, over: Tensor) -> Tensor:
    """Mass `[N, S]` that `flow` `[N, S, A, K]` moves, without the episodes that are over."""
    left = flow.masked_fill(over.expand_as(flow), 0.0).flatten(1)
    return torch.zeros(flow.shape[:2], dtype=flow.dtype).scatter_add(1, after.flatten(1), left)


random_exact = partial(noisy_exact, noise=1.0)
optimal_exact = partial(noisy_exact, noise=0.0)


class TableEnv(TensorEnv):
    """World whose rules are a table for each task; exact expectations come from these. The observation is the state.

    A task is the number of its table, `[B, 1]`. A subclass sets `spec`, `starts` and, by `set_rules`, the tables."""

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


class Unlearned:
    """Base of policies that remember nothing."""

    def initial_carry(self, num_streams: int) -> tuple[()]:
        return ()


class Chance(Unlearned):
    """Uniformly random play."""

    def __init__(self, spec: EnvSpec) -> None:
        self._spec = spec

    def act(self, carry: tuple[()], step: Step, noise: Tensor) -> tuple[Tensor, tuple[()]]:
        return uniform_actions(self._spec, step.obs, noise), carry


class Planner(Unlearned):
    """The optimal action of the world, which knows the task."""

    def act(self, carry: tuple[()], step: Step, noise: Tensor) -> tuple[Tensor, tuple[()]]:
        return step.optimal_action, carry


def uniform_actions(spec: EnvSpec, obs: Tensor, noise: Tensor) -> Tensor:
    """Uniformly random actions of a world with `spec`, `[B, ...]`, among the legal ones for `obs`, by `noise` `[B]`."""
    space = spec.action_space
    if isinstance(space, MultiDiscrete):
        sizes = torch.from_numpy(space.nvec).to(noise.device)
        return (several(noise, len(sizes)) * sizes).long()
    if isinstance(space, Box):
        low, high = (torch.from_numpy(bound).to(noise.device) for bound in (space.low, space.high))
        return low + (high - low) * several(noise, low.numel()).view(-1, *low.shape)
    return draw_possible(uniform(spec, obs), noise)


def uniform(spec: EnvSpec, obs: Tensor) -> Tensor:
    """Probability of each action, `[B, A]`, if all that are legal for `obs` are equally likely."""
    legal = spec.legal(obs)
    if legal is None:
        legal = torch.ones(len(obs), spec.num_actions, device=obs.device)
    return legal / legal.sum(1, keepdim=True)
