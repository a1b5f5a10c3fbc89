"""New critics, and trained ones."""

from __future__ import annotations

from typing import Any

import torch

from icrl.app.root import Config
from icrl.config.modules import recorded_options
from icrl.config.options import refuse, walk
from icrl.contracts import ConfigError, Json
from icrl.extensions.offline_rl.critic import (
    Critic,
    CriticConfig,
    DecoderConfig,
    EncoderConfig,
    ValueNetwork,
    trunk_config,
)
from icrl.extensions.offline_rl.options import OfflineConfig
from icrl.nn.gpt import GPTConfig
from icrl.objectives.imitation import ObjectiveConfig
from icrl.runs.checkpoint import open_model
from icrl.runs.device import dtype_of
from icrl.runs.files import check_same
from icrl.spaces import EnvSpec

PROGRAM = "train_ilql"
_OPTIONS: dict[str, Any] = {  # of a critic, by their groups
    "model": GPTConfig,
    "encoder": EncoderConfig,
    "decoder": DecoderConfig,
    "critic": CriticConfig,
}


def make_critic(config: OfflineConfig, spec: EnvSpec, recompute: bool = False) -> Critic:
    """New critic with the options `model`, `encoder`, `decoder` and `critic` of `config`."""
    trunk = trunk_config(config.model, config.encoder)
    return Critic(ValueNetwork(trunk, config.decoder, config.critic, spec, recompute))


def load_critic(
    config: Config, device: torch.device, spec: EnvSpec | None = None, kind: str | int = "last"
) -> tuple[Critic, Json]:
    """Critic of `config.run`, for a world with `spec` if that differs from its own, and the sidecar of its newest
    checkpoint of `kind` (see `open_model`). Raises `ConfigError` if there is none or its options differ from
    those of `config`."""
    state, about = open_model(config.run_folder / "ilql", kind, PROGRAM, device)
    described, where = about["description"], f"the critic of run={config.run}"
    own = [one for one in ("encoder", "decoder", "critic") if hasattr(config, one)]
    check_same(config, described["config"], ("model", *own), where)
    model, encoder, decoder, values = (
        recorded_options(kind, described["config"].get(group), config.run_folder / "ilql", group)
        for group, kind in _OPTIONS.items()
    )
    network = ValueNetwork(trunk_config(model, encoder), decoder, values, spec or EnvSpec.of(described["env"]))
    critic = Critic(network).to(device, dtype_of(config))
    try:
        critic.load_state_dict(state["model"])
    except RuntimeError as error:
        raise ConfigError(f"{where}: does not fit the options of this run: {' '.join(str(error).split())}") from error
    return critic.eval(), about


def check_rows(config: Config) -> None:
    """Refuse an objective that selects histories, because critics learn from all of them."""
    selects = type(config.objective).rows is not ObjectiveConfig.rows
    refuse(selects, f"objective.name={config.objective.name} selects histories only for train_gpt: give objective=ad")


def check_critic(config: Config, critic: Json, other: Json) -> None:
    """Raise `ConfigError` unless a critic described by `critic` and the `other` model, which it teaches or guides, have
    the same world, tasks and histories. A description that is only a configuration has no histories yet."""
    where, model = f"the critic of run={config.run}", "the model that it teaches or guides"
    fixed = {key for key, _, declared in walk(config) if not declared.may_change}
    for group in ("env", "tasks", "data"):
        for key, value in other["config"][group].items():
            name = f"{group}.{key}"
            if name in fixed and (made := critic["config"][group].get(key)) != value:
                raise ConfigError(f"{where} was made with {name}={made}, but {model} with {name}={value}")
    checksums = [[store["sha256"] for store in one["histories"]] for one in (critic, other) if "histories" in one]
    if len(checksums) == 2 and checksums[0] != checksums[1]:
        raise ConfigError(f"{where} and {model} learned from different histories")
