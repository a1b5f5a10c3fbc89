"""Bandits with k arms: a single observation, k actions, and the best of them to be found."""

from typing import Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor

from icrl.config.options import option, refuse
from icrl.envs.core import NAME, EnvConfig, MapView, Outcomes, State, TensorEnv
from icrl.spaces import discrete_spec

_MOST_ARMS = 10**6  # of all bandits: with 65 rewards each, half a gigabyte
GRID = 0.25  # distance between two reward values of a gaussian bandit
LARGEST = 8.0  # reward value; larger ones are rounded to it


class BanditConfig(EnvConfig):
    name: Literal["bandit"] = option("bandit", NAME)
    num_arms: int = option(10, "number of arms", ge=2, le=100)
    distribution: Literal["bernoulli", "gaussian"] = option(
        "bernoulli",
        "bernoulli: an arm pays 1 with its own probability; gaussian: its mean plus noise of deviation env.deviation",
    )
    deviation: float = option(0.5, "deviation of a gaussian arm's rewards around its mean", gt=0, le=10)
    num_tasks: int = option(
        1100, "bandits in all; arms are drawn uniformly from [0, 1], or from N(0, 1) if gaussian", ge=3, le=10**6
    )
    tasks_seed: int = option(0, "seed of the arms", ge=0, le=10**9)

    @model_validator(mode="after")
    def _check(self) -> Self:
        arms = f"env.num_tasks={self.num_tasks} x env.num_arms={self.num_arms}"
        refuse(self.num_tasks * self.num_arms > _MOST_ARMS, f"{arms} must be at most {_MOST_ARMS} arms")
        return self


class Bandit(TensorEnv):
    """A task is the number of the bandit, `[B, 1]`.

    bernoulli: arm a pays 1 with probability mean_a, drawn from U(0, 1), else 0. gaussian: it pays mean_a, drawn from
    N(0, 1), plus noise of a given deviation, rounded to the nearest of a grid of reward values. An episode is
    `max_episode_steps` pulls; with one, every pull is an episode, and a curve over episodes is one over pulls."""

    task_columns = ("bandit",)

    def __init__(self, config: BanditConfig) -> None:
        generator = torch.Generator().manual_seed(config.tasks_seed)
        shape = (config.num_tasks, config.num_arms)
        if config.distribution == "bernoulli":
            means = torch.rand(shape, generator=generator, dtype=torch.float64)
            values = torch.tensor([0.0, 1.0], dtype=torch.float64)
            self._probabilities = torch.stack([1 - means, means], dim=-1)  # [tasks, arms, K]
        else:
            means = torch.randn(shape, generator=generator, dtype=torch.float64)
            values = torch.arange(-LARGEST, LARGEST + GRID, GRID, dtype=torch.float64)
            edges = (values[1:] + values[:-1]) / 2
            below = torch.special.ndtr((edges - means[..., None]) / config.deviation)
            ends = torch.zeros(*shape, 1, dtype=torch.float64)
            self._probabilities = torch.cat([ends, below, ends + 1], dim=-1).diff(dim=-1)
        self._drawn = means  # before rewards are rounded, which depends on the deviation
        self.means = self._probabilities @ values  # [tasks, arms]
        self._best = self.means.argmax(dim=1)
        limit = config.max_episode_steps
        self.spec = discrete_spec(1, config.num_arms, tuple(values.tolist()), 0, limit, success="best_action")
        self.starts = torch.zeros(1, dtype=torch.long)
        self._one_pull = limit == 1

    def all_tasks(self) -> Tensor:
        return torch.arange(len(self.means))[:, None]

    def outcomes(self, task: Tensor, state_index: Tensor, action: Tensor) -> Outcomes:
        """Every reward value, each with its probability."""
        task, state_index, action = torch.broadcast_tensors(task[..., 0], state_index, action)
        probability = self._probabilities[task, action]
        reward = torch.arange(probability.shape[-1], device=task.device).expand_as(probability)
        return Outcomes(probability, torch.zeros_like(reward), reward, torch.full_like(reward, self._one_pull).bool())

    def optimal_action(self, state: State) -> Tensor:
        return self._best[state.task[..., 0]]

    def label(self, task: Tensor) -> str:
        return f"bandit_{int(task[0])}"

    def fingerprint(self, tasks: Tensor) -> list[str]:
        """Means of the arms."""
        return [str(means) for means in self._drawn[tasks[:, 0]].tolist()]

    def map_view(self, task: Tensor) -> MapView:
        """The arms in a row, the best one marked."""
        return MapView(1, self.spec.num_actions, (int(self._best[task[0]]),))

    def cell(self, obs: Tensor, action: Tensor) -> Tensor:
        """The arm that was pulled."""
        return action
