"""Noise distillation (Zisman et al., 2023, "Emergence of in-context reinforcement learning from noise distillation",
arXiv 2312.12275): histories that improve without a learning agent, because noise falls over a run,

    pi_t(a | s) = noise(t) / A + (1 - noise(t)) * pi_expert(a | s)

The expert is the planner, whose action is in `Step.optimal_action`, or the trained agents of another run. The limits of
noise 0 and 1 are sources of their own, `optimal` and `random`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from icrl.config.options import Name, Rate, option
from icrl.config.paths import PROJECT
from icrl.contracts import ConfigError, Env, EnvSpec, Json, Learned, Sample, Step
from icrl.envs import make_env
from icrl.envs.core import EnvConfig
from icrl.envs.exact import noisy_exact
from icrl.runs import checkpoint
from icrl.runs.files import check_same
from icrl.sources import source, source_class
from icrl.sources.learners import Learner
from icrl.sources.options import SourceConfig
from icrl.sources.searcher import SearcherConfig

if TYPE_CHECKING:
    from icrl.config.root import Config


_NAME = "source algorithm; the preset `source=` sets all of this group"


class NoiseDistillationConfig(SourceConfig):
    name: Literal["noise_distillation"] = option("noise_distillation", _NAME)
    noise: Annotated[Any, Rate(ge=0, le=1)] = option(
        {"kind": "linear", "progress": "percent", "points": [[0, 1.0], [0.9, 0.0]]},
        "probability of a uniformly random action instead of the expert's",
    )
    max_performance: float = option(
        1.0,
        "best performance of the planner, from the return of chance (0) to the optimal return (1): the "
        "noise never falls below the level that gives it",
        gt=0,
        le=1,
    )
    teacher: Name = option("none", "name of the stage-one run whose trained agents are the experts (none: the planner)")


class OptimalConfig(SourceConfig):
    name: Literal["optimal"] = option("optimal", _NAME)


class RandomConfig(SourceConfig):
    name: Literal["random"] = option("random", _NAME)


_HALVINGS = 12  # of the interval that holds the least noise


@source("noise_distillation", NoiseDistillationConfig)
class NoiseDistillation(Learner):
    """L learners that imitate `expert`, which is the planner if it is None, with noise; they learn nothing."""

    uses_planner = True

    def __init__(self, config: SourceConfig, spec: EnvSpec, seeds: Tensor, device: torch.device) -> None:
        super().__init__(config, spec, seeds, device)
        self.expert: Learner | None = None
        self.find_least_noise: Callable[[], Tensor] = lambda: torch.zeros(len(seeds))
        self._least_noise: Tensor | None = None  # [L], found when first needed, unless it is restored

    @classmethod
    def create(cls, config: Config, env: Env[Any], tasks: Tensor, seeds: Tensor, device: torch.device) -> Self:
        """Learners with their expert and least noise. Raises `ConfigError` without a planner or such a teacher."""
        learners, options = cls(config.source, env.spec, seeds, device), config.source
        if isinstance(options, NoiseDistillationConfig) and options.teacher != "none":
            learners.expert = trained_agents(config, options.teacher, env.spec, tasks, seeds, device)
        elif cls.uses_planner:
            with closing(make_env(config.env)) as world:
                if not world.has_planner:
                    raise ConfigError(
                        f"source.name={options.name} needs the optimal action, which is unknown with "
                        f"env.name={config.env.name}: use another source"
                    )
            if isinstance(options, NoiseDistillationConfig) and options.max_performance < 1:
                find = partial(least_noise, config.env, tasks.cpu(), options.max_performance)
                learners.find_least_noise = lambda: find().repeat_interleave(config.source.num_learners)
        return learners

    @property
    def least_noise(self) -> Tensor:
        """Lower bound of each learner's noise, `[L]`."""
        if self._least_noise is None:
            self._least_noise = self.find_least_noise().float().to(self.device)
        return self._least_noise

    @property
    def noise(self) -> Tensor:
        """Probability of a uniformly random action now, `[L]`."""
        return self.least_noise.clamp(min=self.scheduled_noise())

    def scheduled_noise(self) -> float:
        """Noise at the present clock, without its lower bound."""
        return self.rate("noise")

    def action_probabilities(self, step: Step) -> Tensor:
        share = self.noise.repeat_interleave(len(step.obs) // self.num_learners)[:, None]
        num_actions = self._spec.num_actions
        if (share == 1.0).all():  # needs no expert, and so no planner
            legal = self._spec.legal(step.obs)
            if legal is not None:
                return legal / legal.sum(1, keepdim=True)
            return (share / num_actions).expand(-1, num_actions)
        best = self.expert.action_probabilities(step) if self.expert else one_hot(step.optimal_action, num_actions)
        return share / num_actions + (1 - share) * best

    def update(self, sample: Sample) -> Learned:
        """Report the noise; nothing is learned."""
        return Learned({"noise": self.noise})

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "least_noise": self.least_noise}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._least_noise = state["least_noise"]


@source("optimal", OptimalConfig)
class Optimal(NoiseDistillation):
    """The planner, from the first step to the last."""

    def scheduled_noise(self) -> float:
        return 0.0


@source("random", RandomConfig)
class Random(NoiseDistillation):
    """Uniformly random actions, from the first step to the last."""

    uses_planner = False

    def scheduled_noise(self) -> float:
        return 1.0


def open_teacher(config: Config, teacher: str, device: torch.device) -> tuple[dict[str, Any], Json]:
    """Last state and sidecar of the finished run `teacher`. Raises `ConfigError` if there is none."""
    folder = PROJECT / config.root / "logs" / teacher / "source"
    found = checkpoint.open_finished(folder, "last", "train_agents", device)
    if found is None:
        raise ConfigError(
            f"source.teacher={teacher}: no finished run of stage one in {folder}. Run src.train_agents with "
            f"name={teacher} to its end first"
        )
    return found


def trained_agents(
    config: Config, teacher: str, spec: EnvSpec, tasks: Tensor, seeds: Tensor, device: torch.device
) -> Any:
    """Learners of `tasks` `[G, task_dim]` as the run `teacher` ended with them. Raises `ConfigError` if they do not fit
    this run."""
    state, about = open_teacher(config, teacher, device)
    recorded = about["description"]["config"]
    check_same(config, recorded, ("env", "tasks"), f"source.teacher={teacher}")
    kind = source_class(recorded["source"]["name"])
    options = kind.options(**recorded["source"])
    if isinstance(options, SearcherConfig):
        raise ConfigError(
            f"source.teacher={teacher} is a searcher, which needs its own past and cannot teach: give another "
            "source.teacher"
        )
    if isinstance(options, NoiseDistillationConfig) and options.teacher != "none":
        raise ConfigError(
            f"source.teacher={teacher} does not learn, but imitates source.teacher={options.teacher}: give that one"
        )
    if config.source.num_learners * config.source.num_envs % options.num_learners:
        raise ConfigError(
            f"source.num_learners={config.source.num_learners} x source.num_envs={config.source.num_envs} must be a "
            f"multiple of the {options.num_learners} learners per task of source.teacher={teacher}"
        )
    agents = kind(options, spec, seeds[:1].expand(len(tasks) * options.num_learners), device)
    agents.load_state_dict(state["learner"])
    return agents


def least_noise(config: EnvConfig, tasks: Tensor, max_performance: float) -> Tensor:
    """Noise at which the planner's return is `max_performance` of the way from that of random actions to the optimum,
    `[G]` for `tasks` `[G, task_dim]`. Bisection on exact expectations, exact to 2^-12."""
    with closing(make_env(config)) as env:
        random, optimum = (noisy_exact(env, tasks, noise).episode_return for noise in (1.0, 0.0))
        target = random + max_performance * (optimum - random)
        low, high = torch.zeros_like(target), torch.ones_like(target)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            too_good = noisy_exact(env, tasks, middle).episode_return > target
            low, high = torch.where(too_good, middle, low), torch.where(too_good, high, middle)
    return high
