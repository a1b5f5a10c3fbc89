"""Warm starts: a new model starts from a trained trunk, trained heads, a whole critic, or a snapshot to continue."""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from icrl.config.options import walk
from icrl.contracts import ConfigError, EnvSpec, Json
from icrl.nn.critic import Critic
from icrl.nn.gpt import Trunk
from icrl.runs import checkpoint
from icrl.runs.device import recorded
from icrl.training.critics import PROGRAM, check_described, load_weights
from icrl.training.optimizers import make_optimizer

if TYPE_CHECKING:
    from icrl.config.root import Config

PROGRAMS = ("train_gpt", PROGRAM, "extract_policy")
_PREFIX = "critic.initial_model_prefix"
_KEPT = {"optimizer": ("name", "beta1", "beta2", "beta3", "epsilon", "momentum"), "device": ("dtype", "amp_dtype")}


def read_model(
    option: str, path: str, split: Json, device: torch.device, programs: Collection[str] = PROGRAMS
) -> tuple[dict[str, Any], Json]:
    """State and description of the checkpoint at `path`, the value of `option`.

    Raises `ConfigError` if it is missing, was not written by one of `programs`, or was trained on tasks that are held
    out or set aside in `split`. Raises `DamagedCheckpointError` if its checksum is wrong."""
    state, about = checkpoint.load(_sidecar(option, path), device)
    described = about["description"]
    if (found := described.get("program")) not in programs:
        raise ConfigError(f"{option}={path}: is a model of {found}, but must be one of {' or '.join(programs)}")
    check_described(described, Path(path).parent)
    theirs = described["tasks"]
    learned = set(theirs["train"]) - set(theirs["development"]) if theirs["all"] == split["all"] else set[int]()
    if unseen := learned & {*split["held_out"], *split["development"]}:
        raise ConfigError(
            f"{option}={path}: learned on {len(unseen)} tasks that are held out or set aside here; give the same "
            "tasks.seed, tasks.split, tasks.num_train and data.num_development_tasks as its training"
        )
    return state, described


def _sidecar(option: str, path: str) -> Path:
    file = Path(path)
    if file.suffix != ".pt" or not file.is_file():
        raise ConfigError(f"{option}={path}: must be an existing checkpoint, a .pt with its .json beside it")
    return file.with_suffix(".json")


def checksums(config: Config, options: Collection[str]) -> Json:
    """Checksums, by option, of the models named by `options`, for the record of a new run. Raises `ConfigError` if one
    is missing."""
    named = {key: value for key, value, _ in walk(config) if key in options and value != "none"}
    return {
        key: checkpoint.check(_snapshot(config) if key == _PREFIX else _sidecar(key, path))["state_sha256"]
        for key, path in named.items()
    }


def load_trunk(option: str, path: str, trunks: list[Trunk], split: Json, device: torch.device) -> None:
    """Load the trunk of another model into each of `trunks`: that of a critic's target network, or a GPT without its
    policy head."""
    state, described = read_model(option, path, split, device)
    prefix = "target.trunk." if described["program"] == PROGRAM else ""
    weights = {
        name.removeprefix(prefix): value
        for name, value in state["model"].items()
        if name.startswith(prefix) and not name.startswith("policy_head.")
    }
    for trunk in trunks:
        own = {name: value for name, value in trunk.state_dict().items() if name.startswith("policy_head.")}
        load_weights(trunk, weights | own, f"{option}={path}")


def initialize(config: Config, critic: Critic, split: Json, device: torch.device) -> None:
    """Initialize a critic with the models in `encoder.load_from` (a trunk), `decoder.load_from` (the heads of another
    critic's target network) and `critic.initial_model` (a whole critic)."""
    if (path := config.encoder.load_from) != "none":
        trunks = [trunk for trunk in (critic.online.trunk, critic.online.value_trunk) if trunk]
        load_trunk("encoder.load_from", path, trunks, split, device)
    if (path := config.decoder.load_from) != "none":
        state, _ = read_model("decoder.load_from", path, split, device, [PROGRAM])
        weights = {name: value for name, value in critic.state_dict().items() if "_head" not in name}
        for name, value in state["model"].items():
            if "target." in name and "_head" in name:
                weights |= {name: value, name.replace("target.", "online.", 1): value}
        load_weights(critic, weights, f"decoder.load_from={path}")
    critic.copy_to_target()
    if (path := config.critic.initial_model) != "none":
        state, _ = read_model("critic.initial_model", path, split, device, [PROGRAM])
        load_weights(critic, state["model"], f"critic.initial_model={path}")


def snapshot_state(config: Config, critic: Critic, split: Json, device: torch.device) -> dict[str, Any] | None:
    """Full state of the snapshot named by `critic.initial_model_prefix` and `initial_model_index`, from which `critic`
    continues; None without these options. `optimizer.initialize` replaces the optimizer by a new one. Raises
    `ConfigError` if `critic` cannot continue it."""
    prefix, total = config.critic.initial_model_prefix, config.trainer.num_iterations
    if prefix == "none":
        return None
    where = f"{_PREFIX}={prefix}"
    state, described = read_model(_PREFIX, str(_snapshot(config).with_suffix(".pt")), split, device, [PROGRAM])
    if state["step"] > total:
        raise ConfigError(f"{where}: is at update {state['step']}, which is beyond trainer.num_iterations={total}")
    if EnvSpec.of(described["env"]) != critic.online.spec:
        raise ConfigError(f"{where}: its world differs from that of env.name={config.env.name} and its options")
    load_weights(deepcopy(critic), state["model"], where)
    groups = ["device"] if config.optimizer.initialize else ["optimizer", "device"]
    for group in groups:  # that the state depends on; rates are set at each update
        then, now = described["config"][group], recorded(config)[group]
        for name in _KEPT[group]:
            if then.get(name) != now.get(name):
                hint = ", or optimizer.initialize=true for a new one" if group == "optimizer" else ""
                made, given = f"{group}.{name}={then.get(name)}", now.get(name)
                raise ConfigError(f"{where}: was made with {made}, not {given}; give {made}{hint}")
    if config.optimizer.initialize:
        state["updater"]["optimizer"] = make_optimizer(critic, config.optimizer).state_dict()
    return state


def _snapshot(config: Config) -> Path:
    """Sidecar of the snapshot that `critic.initial_model_prefix` and `initial_model_index` name."""
    prefix, index = config.critic.initial_model_prefix, config.critic.initial_model_index
    found = checkpoint.sidecars(Path(prefix), "last") + checkpoint.sidecars(Path(prefix), "snapshot")
    by_update = {checkpoint.step_of(sidecar): sidecar for sidecar in found}
    if not by_update:
        raise ConfigError(f"{_PREFIX}={prefix}: has no snapshots")
    if index >= 0 and index not in by_update:
        there = ", ".join(str(update) for update in sorted(by_update))
        raise ConfigError(f"critic.initial_model_index={index}: {_PREFIX}={prefix} has snapshots {there}")
    return by_update[max(by_update) if index < 0 else index]
