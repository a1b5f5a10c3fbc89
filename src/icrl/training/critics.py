"""Critics and trunks from checkpoints: each is built anew from what the file says of itself, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from icrl.config.offline_schema import CriticConfig, DecoderConfig, EncoderConfig
from icrl.contracts import SPEC_FORM, ConfigError, EnvSpec, Json, PipelineError
from icrl.nn.critic import Critic, trunk_config
from icrl.runs import checkpoint
from icrl.runs.device import dtype_of
from icrl.runs.files import fits
from icrl.runs.identity import check_same

if TYPE_CHECKING:
    from icrl.config.root import Config, ModelConfig

PROGRAM = "train_ilql"
_DESCRIBED = {
    "config": {"env": {"name": str}, "tasks": dict, "data": dict, "model": dict, "optimizer": dict, "device": dict},
    "env": SPEC_FORM,
    "tasks": {"all": list, "train": [int], "held_out": [int], "development": [int]},
    "histories": [{"name": str, "sha256": str}],
    "inputs": dict,
}


def make_critic(described: Json, recompute: bool = False) -> Critic:
    """A new critic of the form that checkpoints describe: `config` and `env`."""
    from icrl.config.root import ModelConfig

    config = described["config"]
    model = trunk_config(ModelConfig(**config["model"]), EncoderConfig(**config["encoder"]))
    decoder, critic = DecoderConfig(**config["decoder"]), CriticConfig(**config["critic"])
    return Critic(model, decoder, critic, EnvSpec.of(described["env"]), recompute)


def open_finished(folder: Path, kind: str, program: str, device: torch.device) -> tuple[dict[str, Any], Json]:
    """As `checkpoint.open_finished`. Raises `ConfigError` where there is none."""
    found = checkpoint.open_finished(folder, kind, program, device)
    if found is None:
        raise ConfigError(f"no finished training in {folder}: run `python -m src.{program}` with the same options")
    check_described(found[1]["description"], folder)
    return found


def check_described(described: Json, folder: Path) -> None:
    """Raise `PipelineError` unless a checkpoint in `folder` says what a model was made with."""
    if not fits(described, _DESCRIBED):
        raise PipelineError(f"a checkpoint in {folder} does not say what it was made with: another version wrote it")


def load_critic(
    config: Config, device: torch.device, spec: EnvSpec | None = None, kind: str = "last"
) -> tuple[Critic, Json]:
    """The critic of `config.run`, and the sidecar of its newest checkpoint of `kind`; as it reads a world with `spec`,
    if that is another. Raises `ConfigError` where there is none, or it was made with other options of critics than
    those of `config`."""
    state, about = open_finished(config.run_folder / "ilql", kind, PROGRAM, device)
    described, where = about["description"], f"the critic of run={config.run}"
    check_same(config, described["config"], ("model", "encoder", "decoder", "critic"), where)
    critic = make_critic(described | ({"env": spec._asdict()} if spec else {})).to(device, dtype_of(config))
    load_weights(critic, state["model"], where)
    return critic.eval(), about


def check_critic(config: Config, critic: Json, other: Json) -> None:
    """Raise `ConfigError` unless a critic that is so described learned in the world, from the histories and on the
    tasks of the `other` model that it is to teach or guide; or of a configuration, which has no histories yet."""
    where = f"the critic of run={config.run}"
    for group in ("env", "tasks", "data"):
        for key, value in other["config"][group].items():
            if critic["config"][group].get(key) != value:
                raise ConfigError(
                    f"{where} was made with {group}.{key}={critic['config'][group].get(key)}, and what it is to teach "
                    f"or guide with {group}.{key}={value}: they must agree"
                )
    if "histories" in other:
        then, now = ([store["sha256"] for store in one["histories"]] for one in (critic, other))
        if then != now:
            raise ConfigError(f"{where} and what it is to teach or guide learned from different histories")


def load_weights(module: nn.Module, state: dict[str, Any], where: str) -> None:
    """Raises `ConfigError` where they do not fit."""
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise ConfigError(f"{where}: does not fit the options of this run: {' '.join(str(error).split())}") from error
