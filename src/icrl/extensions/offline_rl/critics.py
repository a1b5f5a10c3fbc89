"""Trained critics, and new models that start from trained ones: from a trunk, heads, a whole critic or a snapshot."""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

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
from icrl.nn.gpt import GPTConfig, Trunk
from icrl.runs import checkpoint
from icrl.runs.device import dtype_of, recorded
from icrl.runs.files import check_same
from icrl.spaces import EnvSpec
from icrl.training.finished import check_described, open_finished
from icrl.training.optimizers import make_optimizer

if TYPE_CHECKING:
    from icrl.app.root import Config

PROGRAM = "train_ilql"
_OPTIONS: dict[str, Any] = {  # of a critic, by their groups
    "model": GPTConfig,
    "encoder": EncoderConfig,
    "decoder": DecoderConfig,
    "critic": CriticConfig,
}
_PREFIX = "critic.initial_model_prefix"
_KEPT = {"optimizer": ("name", "beta1", "beta2", "beta3", "epsilon", "momentum"), "device": ("dtype", "amp_dtype")}


def make_critic(config: OfflineConfig, spec: EnvSpec, recompute: bool = False) -> Critic:
    """New critic with the options `model`, `encoder`, `decoder` and `critic` of `config`."""
    trunk = trunk_config(config.model, config.encoder)
    return Critic(ValueNetwork(trunk, config.decoder, config.critic, spec, recompute))


def load_critic(
    config: Config, device: torch.device, spec: EnvSpec | None = None, kind: str | int = "last"
) -> tuple[Critic, Json]:
    """Critic of `config.run`, for a world with `spec` if that differs from its own, and the sidecar of its newest
    checkpoint of `kind` (see `open_finished`). Raises `ConfigError` if there is none or its options differ from
    those of `config`."""
    state, about = open_finished(config.run_folder / "ilql", kind, PROGRAM, device)
    described, where = about["description"], f"the critic of run={config.run}"
    own = [one for one in ("encoder", "decoder", "critic") if hasattr(config, one)]
    check_same(config, described["config"], ("model", *own), where)
    model, encoder, decoder, values = (
        recorded_options(kind, described["config"].get(group), config.run_folder / "ilql", group)
        for group, kind in _OPTIONS.items()
    )
    network = ValueNetwork(trunk_config(model, encoder), decoder, values, spec or EnvSpec.of(described["env"]))
    critic = Critic(network).to(device, dtype_of(config))
    _load_weights(critic, state["model"], where)
    return critic.eval(), about


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


def read_model(
    option: str, path: str, split: Json, device: torch.device, *programs: str
) -> tuple[dict[str, Any], Json]:
    """State and description of the checkpoint at `path`, the value of `option`.

    Raises `ConfigError` if it is missing, was not written by one of `programs`, or was trained on tasks that are held
    out or set aside in `split`. Raises `DamagedCheckpointError` if its checksum is wrong."""
    state, about = checkpoint.load(_sidecar(option, path), device)
    described = about["description"]
    found, allowed = described.get("program"), " or ".join(programs)
    refuse(found not in programs, f"{option}={path}: is a model of {found}, but must be one of {allowed}")
    check_described(described, Path(path).parent)
    theirs = described["tasks"]
    learned = set(theirs["train"]) - set(theirs["development"]) if theirs["all"] == split["all"] else set[int]()
    unseen = learned & {*split["held_out"], *split["development"]}
    cure = "give the same tasks.seed, tasks.split, tasks.num_train and data.num_development_tasks as its training"
    refuse(unseen, f"{option}={path}: learned on {len(unseen)} tasks that are held out or set aside here; {cure}")
    return state, described


def checksums(config: OfflineConfig, options: Collection[str]) -> Json:
    """Checksums, by option, of the models named by `options`, for the record of a new run. Raises `ConfigError` if one
    is missing."""
    named = {key: value for key, value, _ in walk(config) if key in options and value != "none"}
    return {key: checkpoint.check(_sidecar(key, path, config))["state_sha256"] for key, path in named.items()}


def load_trunk(option: str, path: str, trunks: list[Trunk], split: Json, device: torch.device) -> None:
    """Load the trunk of another model into each of `trunks`: that of a critic's target network, or a GPT without its
    policy head."""
    state, described = read_model(option, path, split, device, "train_gpt", PROGRAM, "extract_policy")
    prefix, head = "target.trunk." if described["program"] == PROGRAM else "", "policy_head."
    weights = {name.removeprefix(prefix): value for name, value in state["model"].items() if name.startswith(prefix)}
    for trunk in trunks:
        parts = {name: value for name, value in weights.items() if not name.startswith(head)}
        parts |= {name: value for name, value in trunk.state_dict().items() if name.startswith(head)}
        _load_weights(trunk, parts, f"{option}={path}")


def initialize(config: OfflineConfig, critic: Critic, split: Json, device: torch.device) -> None:
    """Initialize a critic with the models in `encoder.load_from` (a trunk), `decoder.load_from` (the heads of another
    critic's target network) and `critic.initial_model` (a whole critic)."""
    if (path := config.encoder.load_from) != "none":
        trunks = [trunk for trunk in (critic.online.trunk, critic.online.value_trunk) if trunk]
        load_trunk("encoder.load_from", path, trunks, split, device)
    if (path := config.decoder.load_from) != "none":
        state, _ = read_model("decoder.load_from", path, split, device, PROGRAM)
        weights = {name: value for name, value in critic.state_dict().items() if "_head" not in name}
        for name, value in state["model"].items():
            if "target." in name and "_head" in name:
                weights |= {name: value, name.replace("target.", "online.", 1): value}
        _load_weights(critic, weights, f"decoder.load_from={path}")
    critic.copy_to_target()
    if (path := config.critic.initial_model) != "none":
        state, _ = read_model("critic.initial_model", path, split, device, PROGRAM)
        _load_weights(critic, state["model"], f"critic.initial_model={path}")


def snapshot_state(config: OfflineConfig, critic: Critic, split: Json, device: torch.device) -> dict[str, Any] | None:
    """Full state of the snapshot named by `critic.initial_model_prefix` and `initial_model_index`, from which `critic`
    continues; None without these options. `optimizer.initialize` replaces the optimizer by a new one. Raises
    `ConfigError` if `critic` cannot continue it."""
    prefix, total = config.critic.initial_model_prefix, config.trainer.num_iterations
    if prefix == "none":
        return None
    where, path = f"{_PREFIX}={prefix}", _sidecar(_PREFIX, prefix, config).with_suffix(".pt")
    state, described = read_model(_PREFIX, str(path), split, device, PROGRAM)
    step, differs = state["step"], EnvSpec.of(described["env"]) != critic.online.spec
    refuse(step > total, f"{where}: is at update {step}, which is beyond trainer.num_iterations={total}")
    refuse(differs, f"{where}: its world differs from that of env.name={config.env.name} and its options")
    _load_weights(deepcopy(critic), state["model"], where)
    anew = config.optimizer.initialize
    for group, names in _KEPT.items():  # that the state depends on; rates are set at each update
        then, now = described["config"][group], recorded(config)[group]
        for name in () if anew and group == "optimizer" else names:
            made, hint = f"{group}.{name}={then.get(name)}", ", or optimizer.initialize=true" * (group == "optimizer")
            differs = then.get(name) != now.get(name)
            refuse(differs, f"{where}: was made with {made}, not {now.get(name)}; give {made}{hint}")
    if anew:
        state["updater"]["optimizer"] = make_optimizer(critic, config.optimizer).state_dict()
    return state


def _sidecar(option: str, path: str, config: OfflineConfig | None = None) -> Path:
    """Sidecar of the checkpoint at `path`, or of the snapshot in the folder `path` that `config` chooses."""
    if option == _PREFIX and config:
        index, folder = config.critic.initial_model_index, Path(path)
        by_update = {step: path for step, path in checkpoint.by_step(folder).items() if "best" not in path.name}
        refuse(not by_update, f"{_PREFIX}={path}: has no snapshots")
        there = ", ".join(map(str, sorted(by_update)))
        wrong = index >= 0 and index not in by_update
        refuse(wrong, f"critic.initial_model_index={index}: {_PREFIX}={path} has snapshots {there}")
        return by_update[max(by_update) if index < 0 else index]
    exists = path.endswith(".pt") and Path(path).is_file()
    refuse(not exists, f"{option}={path}: must be an existing checkpoint, a .pt with its .json beside it")
    return Path(path).with_suffix(".json")


def _load_weights(module: nn.Module, state: dict[str, Any], where: str) -> None:
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise ConfigError(f"{where}: does not fit the options of this run: {' '.join(str(error).split())}") from error
