"""Bandits with k arms: k actions, and the best of them to be found, in each of C contexts.

N tasks, C contexts, A arms, K reward values, d features.
"""

from typing import Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor

from icrl.config.options import option, refuse
from icrl.envs.core import NAME, EnvConfig, MapView, Outcomes, State, TensorEnv, world
from icrl.spaces import discrete_spec

_MOST_ARMS = 10**6  # of all bandits and contexts: with 65 rewards each, half a gigabyte
DEVIATION = 0.5  # of the rewards of a gaussian arm
GRID = 0.25  # distance between two reward values of a gaussian bandit
LARGEST = 8.0  # reward value; larger ones are rounded to it


class BanditConfig(EnvConfig):
    name: Literal["bandit"] = option("bandit", NAME)
    num_arms: int = option(10, "number of arms", ge=2, le=100)
    distribution: Literal["bernoulli", "gaussian"] = option(
        "bernoulli",
        f"bernoulli: an arm pays 1 with its own probability; gaussian: its mean plus noise of deviation {DEVIATION}",
    )
    num_tasks: int = option(
        1100, "bandits in all; arms are drawn uniformly from [0, 1], or from N(0, 1) if gaussian", ge=3, le=10**6
    )
    num_contexts: int = option(
        1, "contexts, one of which is observed before each pull; every arm has a different mean in each", ge=1, le=1000
    )
    num_features: int = option(
        0,
        "0: means of arms are unrelated. d: a linear bandit, whose means are the products of a hidden vector of d "
        "numbers with d known features of context and arm, the same in all bandits",
        ge=0,
        le=64,
    )
    first_mean: float | None = option(
        None, "mean of the first arm of every gaussian bandit (null: drawn like the others)", ge=-8, le=8
    )
    horizon: int = option(
        0,
        "pulls of a life in bernoulli bandits, for the Gittins index, which then plays beside models in place of UCB1 "
        "(0: unknown)",
        ge=0,
        le=2000,
    )

    former = {"tasks_seed": 0, "deviation": DEVIATION}

    @model_validator(mode="after")
    def _check(self) -> Self:
        arms = f"env.num_tasks={self.num_tasks} x env.num_contexts={self.num_contexts} x env.num_arms={self.num_arms}"
        number = self.num_tasks * self.num_contexts * self.num_arms
        refuse(number > _MOST_ARMS, f"{arms} must be at most {_MOST_ARMS} arms")
        coins = f"env.num_features={self.num_features} with env.distribution={self.distribution}"
        unlike = self.num_features and self.distribution != "gaussian"
        refuse(unlike, f"{coins}: means of a linear bandit are any numbers; give env.distribution=gaussian")
        fixed = f"env.first_mean={self.first_mean} needs env.distribution=gaussian and env.num_features=0"
        refuse(self.first_mean is not None and (self.distribution != "gaussian" or self.num_features), fixed)
        known = f"env.horizon={self.horizon} needs env.distribution=bernoulli"
        refuse(self.horizon and self.distribution != "bernoulli", known)
        return self


@world("bandit", BanditConfig)
class Bandit(TensorEnv):
    """A task is the number of the bandit, `[B, 1]`; the observation is the context, uniform in each pull.

    bernoulli: arm a pays 1 with probability mean_a, drawn from U(0, 1), else 0. gaussian: it pays mean_a, drawn from
    N(0, 1), plus noise of deviation 0.5, rounded to the nearest of a grid of reward values; `first_mean` fixes the
    mean of the first arm (Norman and Clune, 2023, arXiv 2307.02276). In a linear bandit
    (Abe and Long, 1999) mean_a = theta . phi_a for features phi_a on the unit sphere of R^d, which all tasks share, and
    theta ~ N(0, I) of the task, so that mean_a ~ N(0, 1) as well. With contexts c (Langford and Zhang, 2007) all of
    this holds for each pair of c and a. An episode is `max_episode_steps` pulls; with one, every pull is an episode,
    and a curve over episodes is one over pulls."""

    task_columns = ("bandit",)
    features: Tensor | None = None  # [C, A, d] of a linear bandit

    def __init__(self, config: BanditConfig) -> None:
        self.horizon, self.first_mean = config.horizon, config.first_mean
        self.deviation = DEVIATION if config.distribution == "gaussian" else None  # of rewards; None: 0 or 1
        generator = torch.Generator().manual_seed(0)
        shape = (config.num_tasks, config.num_contexts, config.num_arms)
        if config.distribution == "bernoulli":
            means = torch.rand(shape, generator=generator, dtype=torch.float64)
            values = torch.tensor([0.0, 1.0], dtype=torch.float64)
            self._probabilities = torch.stack([1 - means, means], dim=-1)  # [N, C, A, K]
        else:
            means = self._gaussian_means(shape, config.num_features, generator)
            if config.first_mean is not None:
                means[..., 0] = config.first_mean
            values = torch.arange(-LARGEST, LARGEST + GRID, GRID, dtype=torch.float64)
            edges = (values[1:] + values[:-1]) / 2
            below = torch.special.ndtr((edges - means[..., None]) / DEVIATION)
            ends = torch.zeros(*shape, 1, dtype=torch.float64)
            self._probabilities = torch.cat([ends, below, ends + 1], dim=-1).diff(dim=-1)
        self._drawn = means.flatten(1)  # before rewards are rounded
        self.means = self._probabilities @ values  # [N, C, A]
        self._best = self.means.argmax(dim=-1)
        limit = config.max_episode_steps
        rewards = tuple(values.tolist())
        self.spec = discrete_spec(config.num_contexts, config.num_arms, rewards, 0, limit, success="best_action")
        self.starts = torch.arange(config.num_contexts)
        self._one_pull = limit == 1

    def _gaussian_means(self, shape: tuple[int, int, int], num_features: int, generator: torch.Generator) -> Tensor:
        """Means `[N, C, A]`, each N(0, 1) over the tasks; sets the features of a linear bandit."""
        if not num_features:
            return torch.randn(shape, generator=generator, dtype=torch.float64)
        drawn = torch.randn(*shape[1:], num_features, generator=generator, dtype=torch.float64)
        self.features = drawn / drawn.norm(dim=-1, keepdim=True)
        hidden = torch.randn(shape[0], num_features, generator=generator, dtype=torch.float64)
        return torch.einsum("nd,cad->nca", hidden, self.features)

    def all_tasks(self) -> Tensor:
        return torch.arange(len(self.means))[:, None]

    def outcomes(self, task: Tensor, state_index: Tensor, action: Tensor) -> Outcomes:
        """Every reward value with its probability, each with every context of the next pull. If that begins an episode,
        the context stays until then."""
        task, state_index, action = torch.broadcast_tensors(task[..., 0], state_index, action)
        probability = self._probabilities[task, state_index, action]
        number = 1 if self._one_pull else self.spec.num_obs
        probability = (probability / number).repeat_interleave(number, dim=-1)
        outcome = torch.arange(probability.shape[-1], device=task.device).expand_as(probability)
        context = state_index[..., None].expand_as(outcome) if self._one_pull else outcome % number
        return Outcomes(probability, context, outcome // number, torch.full_like(outcome, self._one_pull).bool())

    def optimal_action(self, state: State) -> Tensor:
        return self._best[state.task[..., 0], state.inner]

    def label(self, task: Tensor) -> str:
        return f"bandit_{int(task[0])}"

    def fingerprint(self, tasks: Tensor) -> list[str]:
        """Means of the arms, context by context."""
        return [str(means) for means in self._drawn[tasks[:, 0]].tolist()]

    def map_view(self, task: Tensor) -> MapView:
        """A row of arms for each context, the best ones marked."""
        num_contexts, num_arms = self.means.shape[1:]
        best = torch.arange(num_contexts, device=task.device) * num_arms + self._best[task[0]]
        return MapView(num_contexts, num_arms, tuple(best.tolist()))

    def cell(self, obs: Tensor, action: Tensor) -> Tensor:
        """The arm that was pulled, in the row of the context `obs`; before a pull no cell."""
        return torch.where(action < 0, -1, obs * self.spec.num_actions + action)
