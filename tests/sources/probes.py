"""Tiny worlds whose values are known, and random transitions."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from src.config import load_config
from src.contracts import EnvSpec, Rollout, Step
from src.envs import make_env
from src.envs.base import State, TensorEnv
from src.envs.rollout import rollout, start_streams
from src.randomness import Noise, integers, stream_seeds
from src.schedules import Clock

START = Clock(percent=0.0, iterations=0, env_steps=0, updates=0)
SPEC = EnvSpec(num_obs=6, num_actions=3, num_rewards=2, width=6, max_episode_steps=20)


class Probe(TensorEnv):
    """A place is what is seen."""

    def __init__(self, num_obs: int, num_actions: int, max_episode_steps: int) -> None:
        self.spec = EnvSpec(num_obs, num_actions, 2, num_obs, max_episode_steps)

    def start(self, task: Tensor, seed: Tensor, episode: Tensor) -> Tensor:
        return torch.zeros_like(seed)

    def observe(self, place: Tensor) -> Tensor:
        return place

    def optimal_action(self, state: State) -> Tensor:
        return torch.zeros_like(state.place)


class OneStep(Probe):
    """Reward 1, and the end."""

    def move(self, task: Tensor, place: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return place, torch.ones_like(place), torch.ones_like(place).bool()


class MatchIt(Probe):
    """One step; reward 1 for the action that has the number of the observation, which is drawn anew each time."""

    def start(self, task: Tensor, seed: Tensor, episode: Tensor) -> Tensor:
        return integers(seed, episode, 2)

    def move(self, task: Tensor, place: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return place, (action == place).long(), torch.ones_like(place).bool()


class TwoSteps(Probe):
    """Nothing, then reward 1 and the end."""

    def move(self, task: Tensor, place: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return (place + 1).clamp(max=1), (place == 1).long(), place == 1


class Endless(Probe):
    """Reward 1 at each step; only the clock ends it."""

    def move(self, task: Tensor, place: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return place, torch.ones_like(place), torch.zeros_like(place).bool()


def random_rollout(num_steps: int, num_streams: int, seed: int) -> Rollout:
    generator = torch.Generator().manual_seed(seed)

    def below(high: int) -> Tensor:
        return torch.randint(high, (num_steps, num_streams), generator=generator)

    return Rollout(
        obs=below(SPEC.num_obs),
        action=below(SPEC.num_actions),
        reward=below(2),
        next_obs=below(SPEC.num_obs),
        timestep=below(SPEC.max_episode_steps),
        terminated=below(4) == 0,
        truncated=below(4) == 0,
        optimal_action=below(SPEC.num_actions),
    )


def step_of(obs: Tensor) -> Step:
    """What a stream shows that stands on `obs` `[B]`."""
    zero = torch.zeros_like(obs)
    return Step(obs, zero, zero.bool(), zero.bool(), obs, zero)


def alone_and_among_others(kind: Any, config: Any, index: int, rollout_len: int, num_updates: int) -> tuple[Any, Any]:
    """Learner `index` of four, one for each of four tasks with three environments each, after it has played and learned
    alone, and all four; what it lived through must be the same to the bit, and not without reward."""
    env = make_env(dataclasses.replace(load_config().env, size=4, random_start=True, max_episode_steps=7))
    tasks = torch.tensor([[0], [6], [9], [15]])

    def live(streams: slice, learners: slice) -> tuple[Rollout, Any]:
        learner = kind(config, env.spec, stream_seeds(0, 4, 2)[learners], torch.device("cpu"))
        learner.set_clock(START)
        where = start_streams(learner, env, tasks.repeat_interleave(3, 0)[streams], stream_seeds(0, 12, 0)[streams])
        noise, lived = Noise(stream_seeds(0, 12, 1)[streams]), []
        for _ in range(num_updates):
            transitions, where = rollout(learner, env, where, rollout_len, noise)
            learner.update(transitions)
            lived.append(transitions)
        return Rollout(*(torch.cat(column) for column in zip(*lived, strict=True))), learner

    streams = slice(3 * index, 3 * index + 3)
    together, all_learners = live(slice(None), slice(None))
    alone, one = live(streams, slice(index, index + 1))
    for column, columns in zip(alone, together, strict=True):
        assert torch.equal(column, columns[:, streams])
    assert alone.reward.sum() > 0
    return one, all_learners
