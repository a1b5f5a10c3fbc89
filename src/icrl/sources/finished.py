"""Agents of finished runs of stage one."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from icrl.config.modules import command_of
from icrl.contracts import ConfigError, Json, PipelineError
from icrl.envs import make_env
from icrl.runs import checkpoint
from icrl.runs.files import PROJECT, check_same, has_form
from icrl.sources import source_class, source_of
from icrl.sources.learners import Learner

if TYPE_CHECKING:
    from icrl.app.root import Config

Opened = tuple[dict[str, Any], Json]  # last state of a finished run, and its sidecar


def open_agents(config: Config, run: str, where: str, device: torch.device) -> Opened:
    """Last state and sidecar of the finished `run`. Raises `ConfigError`, which begins with `where`, if there is
    none."""
    folder = PROJECT / config.root / "logs" / run / "source"
    opened = checkpoint.open_finished(folder, "last", "train_agents", device)
    if opened is None:
        how = f"run {command_of('train_agents')} with that name"
        raise ConfigError(f"{where}: no finished run in {folder}: {how}")
    if not has_form(opened[1]["description"], {"config": {"env": dict, "source": {"name": str}}}):
        raise PipelineError(f"a checkpoint in {folder} lacks the options of its agents: another version wrote it")
    return opened


def restored(config: Config, opened: Opened, where: str, tasks: Tensor) -> Learner:
    """Learners of an `opened` run for `tasks` `[G, task_dim]`; of these tasks alone, unless it is one for all. Raises
    `ConfigError`, which begins with `where`, if they are of another world than that of `config`."""
    state, about = opened
    recorded = about["description"]["config"]
    check_same(config, recorded, ("env", "tasks"), where)
    options, device = source_of(recorded, where), tasks.device
    with closing(make_env(config.env)) as world:
        seeds = torch.zeros(options.learners_for(len(tasks)), dtype=torch.long, device=device)
        agents: Learner = source_class(options.name)(options, world.spec, seeds, device)
    agents.load_state_dict(state["learner"])
    return agents
