"""The one loop in which a policy acts in environments, for stage one, stage three and videos."""

from typing import Generic, NamedTuple

import torch
from torch import Tensor

from icrl.contracts import Carry, Env, Policy, Rollout, State, Step
from icrl.randomness import Noise


class Streams(NamedTuple, Generic[State, Carry]):
    """B streams between two rollouts: state of the environments, their last step, carry of the policy."""

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
    """Play `num_steps` steps of every stream; returns `[T, B]` transitions and the streams after them.

    Two rollouts of n steps equal one of 2n."""
    state, step, carry = streams
    before: list[tuple[Tensor, ...]] = []
    after: list[Step] = []
    for step_noise in noise.draw(num_steps):
        action, carry = policy.act(carry, step, step_noise)
        before.append((step.obs, step.timestep, step.optimal_action, action))
        state, step = env.step(state, action)
        after.append(step)
    obs, timestep, best, action = (torch.stack(column) for column in zip(*before, strict=True))
    _, reward, terminated, truncated, final_obs, *_ = (torch.stack(column) for column in zip(*after, strict=True))
    return Rollout(obs, action, reward, final_obs, timestep, terminated, truncated, best), Streams(state, step, carry)
