"""What policies that need no memory can expect of an episode, exactly, by dynamic programming instead of play.

N tasks, S states, A actions, K outcomes, M steps an episode.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from icrl.envs.core import State, TensorEnv
from icrl.envs.episodes import is_success

_CELLS_AT_ONCE = 1 << 21  # bounds the memory: tasks * states * actions * outcomes

Stationary = Callable[[State], Tensor]  # states `[N, S]` to action probabilities `[N, S, A]`


class Expectation(NamedTuple):
    """Exact values of one episode, `[N]` float64 on the CPU each."""

    episode_return: Tensor
    success: Tensor
    steps_to_goal: Tensor  # steps until the success; where there is none, the length of the episode


def random_exact(env: TensorEnv, tasks: Tensor) -> Expectation:
    """Of the uniformly random policy on `tasks` `[N, task_dim]`."""
    return noisy_exact(env, tasks, 1.0)


def optimal_exact(env: TensorEnv, tasks: Tensor) -> Expectation:
    """Of the optimal policy on `tasks` `[N, task_dim]`; averaged over the starts where they vary."""
    return noisy_exact(env, tasks, 0.0)


def noisy_exact(env: TensorEnv, tasks: Tensor, noise: float | Tensor) -> Expectation:
    """Of who takes a uniformly random action with probability `noise`, a number or one for each task `[N]`, else the
    optimal one."""
    shares = torch.as_tensor(noise, dtype=torch.float64).expand(len(tasks))
    at_once = _tasks_at_once(env, tasks)
    chunks = zip(tasks.split(at_once), shares.split(at_once), strict=True)
    return _joined(_expectation(env, chunk, partial(_noisy, env, share)) for chunk, share in chunks)


def expectation(env: TensorEnv, tasks: Tensor, policy: Stationary) -> Expectation:
    """Of `policy`, which may depend on the state and time step, on `tasks` `[N, task_dim]`."""
    return _joined(_expectation(env, chunk, policy) for chunk in tasks.split(_tasks_at_once(env, tasks)))


def _noisy(env: TensorEnv, noise: Tensor, state: State) -> Tensor:
    """Probabilities of the actions in states `[N, S]`, with the `noise` `[N]` of each task."""
    num_actions = env.spec.num_actions
    uniform = torch.full((*state.state_index.shape, num_actions), 1 / num_actions, dtype=torch.float64)
    if (noise == 1.0).all():
        return uniform
    best = torch.nn.functional.one_hot(env.optimal_action(state).cpu(), num_actions).double()
    return best.lerp(uniform, noise[:, None, None])


def _tasks_at_once(env: TensorEnv, tasks: Tensor) -> int:
    first = tasks.new_zeros(1)
    num_outcomes = env.outcomes(tasks[:1], first, first).state_index.shape[-1]
    return max(1, _CELLS_AT_ONCE // (env.num_states * env.spec.num_actions * num_outcomes))


def _joined(parts: Iterable[Expectation]) -> Expectation:
    return Expectation(*(torch.cat(part) for part in zip(*parts, strict=True)))


def _expectation(env: TensorEnv, tasks: Tensor, policy: Stationary) -> Expectation:
    """Probability mass over states flows along the outcomes, step by step."""
    spec = env.spec
    shape = (len(tasks), env.num_states)
    state_index = torch.arange(env.num_states, device=tasks.device).expand(shape)
    zero = torch.zeros_like(state_index)
    state = State(tasks[:, None].expand(-1, env.num_states, -1), zero, zero, state_index, zero)
    actions = torch.arange(spec.num_actions, device=tasks.device)
    task = state.task[:, :, None].expand(-1, -1, spec.num_actions, -1)
    chance, after, reward, ends = (part.cpu() for part in env.outcomes(task, state_index[:, :, None], actions))
    value = torch.tensor(spec.reward_values, dtype=torch.float64)[reward]  # [N, S, A, K]
    mass = torch.zeros(shape, dtype=torch.float64)
    mass[:, env.starts.cpu()] = 1 / len(env.starts)
    fresh = mass  # of episodes without a success so far
    total, success, steps = (torch.zeros(len(tasks), dtype=torch.float64) for _ in range(3))
    for t in range(spec.max_episode_steps):
        now = state._replace(timestep=zero + t)
        chosen = policy(now)[..., None] * chance
        best = actions == env.optimal_action(now)[..., None]
        last = ends | (t + 1 == spec.max_episode_steps)
        won = is_success(spec, value, ends, last, best.cpu()[..., None])
        flow, fresh_flow = mass[..., None, None] * chosen, fresh[..., None, None] * chosen
        total += (flow * value).sum(dim=(1, 2, 3))
        steps += fresh.sum(dim=1)
        success += (fresh_flow * won).sum(dim=(1, 2, 3))
        mass, fresh = _moved(flow, after, ends), _moved(fresh_flow, after, ends | won)
    return Expectation(total, success, steps)


def _moved(flow: Tensor, after: Tensor, over: Tensor) -> Tensor:
    """The mass `[N, S]` where `flow` `[N, S, A, K]` leads, without what is over."""
    left = flow.masked_fill(over.expand_as(flow), 0.0).flatten(1)
    return torch.zeros(flow.shape[:2], dtype=flow.dtype).scatter_add(1, after.flatten(1), left)
