"""The one loop in which anything acts in environments: stage one, stage three and videos."""

from typing import Generic, NamedTuple

import torch
from torch import Tensor

from icrl.contracts import Carry, Env, Policy, Rollout, State, Step
from icrl.randomness import Noise


class Streams(NamedTuple, Generic[State, Carry]):
    """Where B streams stand between two rollouts: the environments, what they showed last, what the policy knows."""

    state: State
    step: Step
    carry: Carry


def start_streams(policy: Policy[Carry], env: Env[State], tasks: Tensor, seeds: Tensor) -> Streams[State, Carry]:
    """Streams at the start of their first episode, one for each row of `tasks` `[B, task_dim]`."""
    state, step = env.reset(tasks, seeds)
    return Streams(state, step, policy.initial_carry(len(seeds)))


@torch.no_grad()
def rollout(
    policy: Policy[Carry], env: Env[State], streams: Streams[State, Carry], num_steps: int, noise: Noise
) -> tuple[Rollout, Streams[State, Carry]]:
    """Play `num_steps` steps of every stream and return `[T, B]` transitions and where the streams stand then.

    Two rollouts of n steps equal one of 2n.
    """
    state, step, carry = streams
    before: list[tuple[Tensor, Tensor, Tensor]] = []
    actions: list[Tensor] = []
    after: list[Step] = []
    for step_noise in noise.draw(num_steps):
        action, carry = policy.act(carry, step, step_noise)
        before.append((step.obs, step.timestep, step.optimal_action))
        state, step = env.step(state, action)
        actions.append(action)
        after.append(step)
    obs, timestep, best = (torch.stack(column) for column in zip(*before, strict=True))
    _, reward, terminated, truncated, final_obs, *_ = (torch.stack(column) for column in zip(*after, strict=True))
    transitions = Rollout(obs, torch.stack(actions), reward, final_obs, timestep, terminated, truncated, best)
    return transitions, Streams(state, step, carry)
