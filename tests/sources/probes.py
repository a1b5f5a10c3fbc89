"""Tiny worlds whose values are known, and random transitions."""

import torch
from torch import Tensor

from src.contracts import EnvSpec, Rollout, Step
from src.envs.base import State, TensorEnv
from src.randomness import integers
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
