"""Trained critics: building them, opening finished trainings, and checking that two models belong together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from icrl.contracts import SPEC_FORM, ConfigError, EnvSpec, Json, PipelineError
from icrl.nn.critic import Critic, ValueNetwork, trunk_config
from icrl.runs import checkpoint
from icrl.runs.device import dtype_of
from icrl.runs.files import check_same, fits

if TYPE_CHECKING:
    from icrl.config.root import Config

PROGRAM = "train_ilql"
_DESCRIBED = {
    "config": {"env": {"name": str}, "tasks": dict, "data": dict, "model": dict, "optimizer": dict, "device": dict},
    "env": SPEC_FORM,
    "tasks": {"all": list, "train": [int], "held_out": [int], "development": [int]},
    "histories": [{"name": str, "sha256": str}],
    "inputs": dict,
}


def make_critic(config: Config, spec: EnvSpec, recompute: bool = False) -> Critic:
    """New critic with the options `model`, `encoder`, `decoder` and `critic` of `config`."""
    trunk = trunk_config(config.model, config.encoder)
    return Critic(ValueNetwork(trunk, config.decoder, config.critic, spec, recompute))


def open_finished(folder: Path, kind: str, program: str, device: torch.device) -> tuple[dict[str, Any], Json]:
    """State and sidecar as by `checkpoint.open_finished`. Raises `ConfigError` if no training is finished there."""
    found = checkpoint.open_finished(folder, kind, program, device)
    if found is None:
        raise ConfigError(f"no finished training in {folder}: run `python -m src.{program}` with the same options")
    check_described(found[1]["description"], folder)
    return found


def check_described(described: Json, folder: Path) -> None:
    """Raise `PipelineError` unless a checkpoint in `folder` records the options of its model."""
    if not fits(described, _DESCRIBED):
        raise PipelineError(f"a checkpoint in {folder} lacks the options of its model: another version wrote it")


def load_critic(
    config: Config, device: torch.device, spec: EnvSpec | None = None, kind: str = "last"
) -> tuple[Critic, Json]:
    """Critic of `config.run`, for a world with `spec` if that differs from its own, and the sidecar of its newest
    checkpoint of `kind`. Raises `ConfigError` if there is none or its options differ from those of `config`."""
    state, about = open_finished(config.run_folder / "ilql", kind, PROGRAM, device)
    described, where = about["description"], f"the critic of run={config.run}"
    check_same(config, described["config"], ("model", "encoder", "decoder", "critic"), where)
    critic = make_critic(config, spec or EnvSpec.of(described["env"])).to(device, dtype_of(config))
    load_weights(critic, state["model"], where)
    return critic.eval(), about


def check_critic(config: Config, critic: Json, other: Json) -> None:
    """Raise `ConfigError` unless a critic described by `critic` and the `other` model, which it teaches or guides, have
    the same world, tasks and histories. A description that is only a configuration has no histories yet."""
    where = f"the critic of run={config.run}"
    for group in ("env", "tasks", "data"):
        for key, value in other["config"][group].items():
            if critic["config"][group].get(key) != value:
                raise ConfigError(
                    f"{where} was made with {group}.{key}={critic['config'][group].get(key)}, but the model that it "
                    f"teaches or guides with {group}.{key}={value}: they must agree"
                )
    if "histories" in other:
        then, now = ([store["sha256"] for store in one["histories"]] for one in (critic, other))
        if then != now:
            raise ConfigError(f"{where} and the model that it teaches or guides learned from different histories")


def load_weights(module: nn.Module, state: dict[str, Any], where: str) -> None:
    """Load a state into `module`; raises `ConfigError` if it does not fit."""
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise ConfigError(f"{where}: does not fit the options of this run: {' '.join(str(error).split())}") from error
