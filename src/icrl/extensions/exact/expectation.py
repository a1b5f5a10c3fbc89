"""Exact expectations of an episode, by the flow of probability mass over states.

N tasks, S states, A actions, K outcomes.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from icrl.envs.core import State, TensorEnv
from icrl.envs.rollout import is_success
from icrl.spaces import EnvSpec


class Expectation(NamedTuple):
    """Exact values of one episode, `[N]` float64 on the CPU each."""

    success: Tensor
    returns: Tensor
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
    return Expectation(success, total, steps)


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


def _next_mass(flow: Tensor, after: Tensor, over: Tensor) -> Tensor:
    """Mass `[N, S]` that `flow` `[N, S, A, K]` moves, without the episodes that are over."""
    left = flow.masked_fill(over.expand_as(flow), 0.0).flatten(1)
    return torch.zeros(flow.shape[:2], dtype=flow.dtype).scatter_add(1, after.flatten(1), left)


random_exact = partial(noisy_exact, noise=1.0)
optimal_exact = partial(noisy_exact, noise=0.0)


def exact_results(env: TensorEnv, tasks: Tensor) -> Mapping[str, Mapping[str, Sequence[float]]]:
    """Results of random and of optimal play on `tasks` `[N, task_dim]`, by policy and measure."""
    policies = {"random": random_exact(env, tasks), "optimum": optimal_exact(env, tasks)}
    return {name: {key: values.tolist() for key, values in found._asdict().items()} for name, found in policies.items()}
