"""Whom a noisy expert imitates, and how noisy it stays; who searches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from icrl.config.env_schema import EnvConfig
from icrl.config.paths import PROJECT
from icrl.config.training_schema import NoiseDistillationConfig, SearcherConfig, SourceConfig, source_of
from icrl.contracts import ConfigError, Json
from icrl.envs import make_env
from icrl.envs.exact import noisy_exact
from icrl.runs import checkpoint
from icrl.runs.identity import check_same
from icrl.sources.experts import NoiseDistillation, Optimal
from icrl.sources.searching import InContextLearner, in_context_learner

if TYPE_CHECKING:
    from icrl.config.root import Config

_HALVINGS = 12

Make = Callable[[SourceConfig], Any]  # fresh learners of the same tasks with these options


def attach_expert(expert: NoiseDistillation, config: Config, tasks: Tensor, make: Make, device: torch.device) -> None:
    """Give `expert` what it needs to play `tasks` `[G, task_dim]`: a teacher, where it is not the planner, and the
    noise below which it may not fall. `make` builds the teacher's learners.

    Raises `ConfigError` where there is no planner, or no such teacher."""
    source = config.source
    teacher = source.teacher if isinstance(source, NoiseDistillationConfig) else "none"
    if teacher != "none":
        expert.expert = _learned(config, teacher, make, device)
    elif isinstance(expert, Optimal) or source.name == "noise_distillation":
        env = make_env(config.env)
        if not env.has_planner:
            raise ConfigError(
                f"source.name={source.name}: nobody knows what is optimal with env.name={config.env.name}"
            )
        if isinstance(source, NoiseDistillationConfig) and source.max_performance < 1:
            expert.find_least_noise = partial(_for_learners, config.env, source, tasks.cpu())


def searcher_of(config: EnvConfig) -> InContextLearner:
    """The policy that learns in its context in this world. Raises `ConfigError` where there is none."""
    with closing(make_env(config)) as env:
        learner = in_context_learner(env, config)
    if learner is None:
        raise ConfigError(f"source.name=searcher: there is no searcher with env.name={config.name}")
    return learner


def open_teacher(config: Config, teacher: str, device: torch.device) -> tuple[dict[str, Any], Json]:
    """State and sidecar that the run `teacher` ended with. Raises `ConfigError` where there is no such end."""
    folder = PROJECT / config.root / "logs" / teacher / "source"
    found = checkpoint.open_finished(folder, "last", "train_agents", device)
    if found is None:
        raise ConfigError(f"source.teacher={teacher}: no finished run of stage one in {folder}")
    return found


def least_noise(config: EnvConfig, tasks: Tensor, max_performance: float) -> Tensor:
    """For each of `tasks` `[G, task_dim]` the probability of a random action at which the planner comes
    `max_performance` of the way from the return of chance to that of the optimum, `[G]`; exact to 2^-12."""
    env = make_env(config)
    chance, optimum = (noisy_exact(env, tasks, noise).episode_return for noise in (1.0, 0.0))
    target = chance + max_performance * (optimum - chance)
    low, high = torch.zeros_like(target), torch.ones_like(target)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        too_good = noisy_exact(env, tasks, middle).episode_return > target
        low, high = torch.where(too_good, middle, low), torch.where(too_good, high, middle)
    return high


def _for_learners(config: EnvConfig, source: NoiseDistillationConfig, tasks: Tensor) -> Tensor:
    return least_noise(config, tasks, source.max_performance).repeat_interleave(source.num_learners)


def _learned(config: Config, teacher: str, make: Make, device: torch.device) -> Any:
    """The learners that the run `teacher` ended with."""
    state, about = open_teacher(config, teacher, device)
    recorded = about["description"]["config"]
    check_same(config, recorded, ("env", "tasks"), f"source.teacher={teacher}")
    source = source_of(recorded)
    if isinstance(source, SearcherConfig):
        raise ConfigError(f"source.teacher={teacher}: a searcher acts on its own past alone, and can teach nobody")
    if isinstance(source, NoiseDistillationConfig) and source.teacher != "none":
        raise ConfigError(f"source.teacher={teacher}: it learned nothing, but imitates source.teacher={source.teacher}")
    streams = config.source.num_learners * config.source.num_envs
    if streams % source.num_learners:
        raise ConfigError(
            f"source.num_learners={config.source.num_learners} x source.num_envs={config.source.num_envs} must be a "
            f"multiple of the {source.num_learners} learners per task of source.teacher={teacher}"
        )
    learners = make(source)
    learners.load_state_dict(state["learner"])
    return learners
