"""Rollouts and episodes: a policy acts in environments, and transitions become finished episodes. B streams."""

from typing import Any, Generic, NamedTuple

import numpy as np
import torch
from torch import Tensor

from icrl.contracts import AnyState, Carry, Env, Policy, Rollout, Step
from icrl.randomness import Noise
from icrl.spaces import EnvSpec

Column = Any  # a tensor or an array, which share these operators
_ROUNDING = 1e-6  # of sums of rewards in float32, relative to the sum if that is above 1
_NEVER = np.iinfo(np.int64).max  # step of a success that did not come


class Streams(NamedTuple, Generic[AnyState, Carry]):
    """B streams between two rollouts: state of the environments, their last step, carry of the policy."""

    state: AnyState
    step: Step
    carry: Carry


def start_streams(policy: Policy[Carry], env: Env[AnyState], tasks: Tensor, seeds: Tensor) -> Streams[AnyState, Carry]:
    """Streams at the start of their first episode, one for each row of `tasks` `[B, task_dim]`."""
    state, step = env.reset(tasks, seeds)
    return Streams(state, step, policy.initial_carry(len(seeds)))


@torch.no_grad()
def rollout(
    policy: Policy[Carry], env: Env[AnyState], streams: Streams[AnyState, Carry], num_steps: int, noise: Noise
) -> tuple[Rollout, Streams[AnyState, Carry]]:
    """Transitions `[T, B]` of `num_steps` steps, and the streams after them. Two rollouts of n steps are one of 2n."""
    state, step, carry = streams
    played: list[Rollout] = []
    for step_noise in noise.draw(num_steps):
        action, carry = policy.act(carry, step, step_noise)
        state, after = env.step(state, action)
        transition = Rollout(
            obs=step.obs,
            action=action,
            reward=after.reward,
            next_obs=after.final_obs,
            timestep=step.timestep,
            terminated=after.terminated,
            truncated=after.truncated,
            optimal_action=step.optimal_action,
        )
        played.append(transition)
        step = after
    transitions = Rollout(*(torch.stack(column) for column in zip(*played, strict=True)))
    return transitions, Streams(state, step, carry)


class Episodes(NamedTuple):
    """Finished episodes, ordered by stream and then by time; arrays with one number per episode."""

    stream: np.ndarray
    returns: np.ndarray  # float
    success: np.ndarray  # bool
    length: np.ndarray
    steps_to_goal: np.ndarray  # steps until the success; without one, the length of the episode


class OpenEpisodes(NamedTuple):
    """Progress of the unfinished episode of each stream, `[B]` each."""

    returns: np.ndarray
    won_at: np.ndarray  # steps until the success, or `_NEVER`

    @classmethod
    def none(cls, num_streams: int) -> "OpenEpisodes":
        return cls(np.zeros(num_streams), np.full(num_streams, _NEVER))


def is_success(
    spec: EnvSpec, reward: Column, terminated: Column, last: Column, optimal: Column, return_so_far: Column
) -> Column:
    """Steps that make their episodes a success, by `spec.success`; all arguments have one shape.

    `reward`: it pays more than 0; `goal`: that, and it ends the task; `end`: it ends the task; `survival`: it is the
    `last` of the episode and does not end the task; `best_action`: it is the `last` and its action was `optimal`;
    `return`: it is the `last` and the return of the episode is at least `spec.success_return`; `final_reward`: it is
    the `last` and pays at least that."""
    match spec.success:
        case "return" | "final_reward":
            paid = return_so_far if spec.success == "return" else reward
            return last & (paid >= spec.success_return - _ROUNDING * max(1.0, abs(spec.success_return)))
        case "best_action":
            return optimal & last
        case "end":
            return terminated
        case "survival":
            return last & ~terminated
        case "goal":
            return (reward > 0) & terminated
    return reward > 0


def returns_so_far(value: Column, done: Column, before: Column) -> list[Column]:
    """Return of the running episode after each of T steps, for rewards and ends of episodes `[T, B]`; `before` `[B]` is
    that of earlier steps."""
    returns, so_far = list[Column](), before
    for reward, ends in zip(value, done, strict=True):
        returns.append(so_far + reward)
        so_far = returns[-1] * ~ends
    return returns


def exact_rewards(spec: EnvSpec, reward: np.ndarray) -> np.ndarray:
    """Rewards in float64 of recorded ones in float32, exactly as the spec lists them if it does."""
    if not spec.reward_values:
        return reward.astype(np.float64)
    return np.array(spec.reward_values, np.float64)[spec.reward_index(torch.from_numpy(reward)).numpy()]


def finished_episodes(rollout: Rollout, before: OpenEpisodes, spec: EnvSpec) -> tuple[Episodes, OpenEpisodes]:
    """Episodes that end in `rollout` `[T, B]`, and the progress of those that do not. `before` is the progress of the
    first episode of each stream in earlier rollouts."""
    reward, timestep, terminated, truncated, action, optimal_action = (
        getattr(rollout, name).transpose(0, 1).cpu().numpy()
        for name in ("reward", "timestep", "terminated", "truncated", "action", "optimal_action")
    )  # [B, T]
    value, ends = exact_rewards(spec, reward), terminated.astype(bool)
    done = ends | truncated.astype(bool)
    so_far = value if spec.success != "return" else np.stack(returns_so_far(value.T, done.T, before.returns), axis=1)
    best = (action == optimal_action).reshape(*done.shape, -1).all(-1)
    won = is_success(spec, value, ends, done, best, so_far)
    num_streams, num_steps = done.shape
    # Cut the flattened [B * T] steps where a stream begins and after each end: a segment is a part of one episode.
    start = np.flatnonzero(np.pad(done[:, :-1], ((0, 0), (1, 0)), constant_values=True))
    stream, last = start // num_steps, np.append(start[1:], done.size) - 1
    returns = np.add.reduceat(value.ravel(), start)
    won_at = np.minimum.reduceat(np.where(won, timestep.astype(np.int64) + 1, _NEVER).ravel(), start)
    opening = start % num_steps == 0
    returns[opening] += before.returns
    won_at[opening] = np.minimum(won_at[opening], before.won_at)
    ended, length = done.ravel()[last], timestep.ravel()[last].astype(np.int64) + 1
    columns = (stream, returns, won_at != _NEVER, length, np.minimum(won_at, length))
    still_open = OpenEpisodes.none(num_streams)
    still_open.returns[stream[~ended]] = returns[~ended]
    still_open.won_at[stream[~ended]] = won_at[~ended]
    return Episodes(*(column[ended] for column in columns)), still_open


def numbered(stream: np.ndarray) -> np.ndarray:
    """Numbers 0, 1, 2, ... of episodes within each stream, for episodes ordered by stream."""
    _, first, inverse = np.unique(stream, return_index=True, return_inverse=True)
    return np.arange(len(stream)) - first[inverse]
