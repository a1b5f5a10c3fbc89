"""Teachers of noise distillation: trained agents of another run, and the noise at which the planner is a worse one."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from icrl.config.env_schema import EnvConfig
from icrl.config.paths import PROJECT
from icrl.config.training_schema import NoiseDistillationConfig, SearcherConfig
from icrl.contracts import ConfigError, EnvSpec, Json
from icrl.envs import make_env
from icrl.envs.exact import noisy_exact
from icrl.runs import checkpoint
from icrl.runs.identity import check_same
from icrl.sources import source_class

if TYPE_CHECKING:
    from icrl.config.root import Config

_HALVINGS = 12


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
            f"source.teacher={teacher} is a searcher, which acts on its own past alone and cannot teach: give another "
            "source.teacher"
        )
    if isinstance(options, NoiseDistillationConfig) and options.teacher != "none":
        raise ConfigError(
            f"source.teacher={teacher} learned nothing, but imitates source.teacher={options.teacher}: give that one"
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
        chance, optimum = (noisy_exact(env, tasks, noise).episode_return for noise in (1.0, 0.0))
        target = chance + max_performance * (optimum - chance)
        low, high = torch.zeros_like(target), torch.ones_like(target)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            too_good = noisy_exact(env, tasks, middle).episode_return > target
            low, high = torch.where(too_good, middle, low), torch.where(too_good, high, middle)
    return high
