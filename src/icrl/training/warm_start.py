"""Starting a new model from another that is trained: trunks, heads, whole critics, and snapshots to go on from."""

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
_KEPT = {
    "optimizer": ("name", "beta1", "beta2", "beta3", "epsilon", "momentum"),
    "device": ("dtype", "amp_dtype"),
}


def read_model(
    option: str, path: str, split: Json, device: torch.device, programs: Collection[str] = PROGRAMS
) -> tuple[dict[str, Any], Json]:
    """State of the checkpoint at `path`, which `option` names, and what it is described as.

    Raises `ConfigError` where there is none, it is of none of `programs`, or it learned on tasks that are held out or
    set aside in `split`; `DamagedCheckpointError` where it is not what was written."""
    state, about = checkpoint.load(_sidecar(option, path), device)
    described = about["description"]
    if (found := described.get("program")) not in programs:
        raise ConfigError(f"{option}={path}: is a model of {found}, and must be one of {' or '.join(programs)}")
    check_described(described, Path(path).parent)
    theirs = described["tasks"]
    learned = set(theirs["train"]) - set(theirs["development"]) if theirs["all"] == split["all"] else set[int]()
    if unseen := learned & {*split["held_out"], *split["development"]}:
        raise ConfigError(
            f"{option}={path}: learned on {len(unseen)} tasks that are held out or set aside here; give tasks.seed, "
            "tasks.split, tasks.num_train and data.num_development_tasks as they were there"
        )
    return state, described


def _sidecar(option: str, path: str) -> Path:
    file = Path(path)
    if file.suffix != ".pt" or not file.is_file():
        raise ConfigError(f"{option}={path}: must be a checkpoint that is there, a .pt with its .json beside it")
    return file.with_suffix(".json")


def checksums(config: Config, options: Collection[str]) -> Json:
    """Of the models that `options` name, for a new run to say what it starts from: by option, without those that name
    none. Raises `ConfigError` where one is not there."""
    named = {key: value for key, value, _ in walk(config) if key in options and value != "none"}
    prefix = "critic.initial_model_prefix"
    return {
        key: checkpoint.check(_snapshot(config) if key == prefix else _sidecar(key, path))["state_sha256"]
        for key, path in named.items()
    }


def load_critic_weights(option: str, path: str, critic: Critic, split: Json, device: torch.device) -> None:
    """Give `critic` all weights of another, its slow copy too."""
    state, _ = read_model(option, path, split, device, [PROGRAM])
    load_weights(critic, state["model"], f"{option}={path}")


def load_trunk(option: str, path: str, trunks: list[Trunk], split: Json, device: torch.device) -> None:
    """Give each of `trunks` the weights of the trunk of another model: a critic's slow one, or all of a GPT but its
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


def load_heads(option: str, path: str, critic: Critic, split: Json, device: torch.device) -> None:
    """Give `critic` the heads of another's slow copy."""
    state, _ = read_model(option, path, split, device, [PROGRAM])
    slow = {name.removeprefix("target."): value for name, value in state["model"].items() if "target." in name}
    heads = {f"{copy}.{name}": slow[name] for name in slow if "_head" in name for copy in ("online", "target")}
    trunks = {name: value for name, value in critic.state_dict().items() if "_head" not in name}
    load_weights(critic, trunks | heads, f"{option}={path}")


def initialize(config: Config, critic: Critic, split: Json, device: torch.device) -> None:
    """Start a new critic from the models that `encoder.load_from`, `decoder.load_from` or `critic.initial_model`
    name."""
    online = critic.online
    if (path := config.encoder.load_from) != "none":
        load_trunk("encoder.load_from", path, [t for t in (online.trunk, online.value_trunk) if t], split, device)
    if (path := config.decoder.load_from) != "none":
        load_heads("decoder.load_from", path, critic, split, device)
    critic.copy_to_target()
    if (path := config.critic.initial_model) != "none":
        load_critic_weights("critic.initial_model", path, critic, split, device)


def snapshot_state(config: Config, critic: Critic, split: Json, device: torch.device) -> dict[str, Any] | None:
    """The whole state of the snapshot that `critic.initial_model_prefix` and `initial_model_index` name, for `critic`
    to go on from; None where they name none."""
    prefix = config.critic.initial_model_prefix
    if prefix == "none":
        return None
    option = "critic.initial_model_prefix"
    state, described = read_model(option, str(_snapshot(config).with_suffix(".pt")), split, device, [PROGRAM])
    _make_fit(config, state, described, critic, f"{option}={prefix}")
    return state


def _snapshot(config: Config) -> Path:
    """The sidecar of the snapshot that `critic.initial_model_prefix` and `initial_model_index` name."""
    prefix, index = config.critic.initial_model_prefix, config.critic.initial_model_index
    option = "critic.initial_model_prefix"
    found = checkpoint.sidecars(Path(prefix), "last") + checkpoint.sidecars(Path(prefix), "snapshot")
    by_update = {checkpoint.step_of(sidecar): sidecar for sidecar in found}
    if not by_update:
        raise ConfigError(f"{option}={prefix}: has no snapshots")
    if index >= 0 and index not in by_update:
        there = ", ".join(str(update) for update in sorted(by_update))
        raise ConfigError(f"critic.initial_model_index={index}: {option}={prefix} has snapshots {there}")
    return by_update[max(by_update) if index < 0 else index]


def _make_fit(config: Config, state: dict[str, Any], described: Json, critic: Critic, where: str) -> None:
    """Let the `state` of a snapshot begin with a new optimizer, if that is asked for. Raises `ConfigError` where
    `critic` cannot go on from it."""
    done, total, then = state["step"], config.trainer.num_iterations, described["config"]
    if done > total:
        raise ConfigError(f"{where}: is of update {done}, which is more than trainer.num_iterations={total}")
    if EnvSpec.of(described["env"]) != critic.online.spec:
        raise ConfigError(f"{where}: was made in another world than that of env.name={config.env.name} and its options")
    load_weights(deepcopy(critic), state["model"], where)
    if config.optimizer.initialize:
        state["updater"]["optimizer"] = make_optimizer(critic, config.optimizer).state_dict()
    else:
        _check_kept(then["optimizer"], recorded(config)["optimizer"], "optimizer", where)
    _check_kept(then["device"], recorded(config)["device"], "device", where)


def _check_kept(then: Json, now: Json, group: str, where: str) -> None:
    """What the state of a snapshot depends on: all but rates, which are set anew at each update."""
    for name in _KEPT[group]:
        if then[name] != now[name]:
            raise ConfigError(
                f"{where}: was made with {group}.{name}={then[name]}, not {now[name]}; give {group}.{name}={then[name]}"
                + (", or optimizer.initialize=true to start anew" if group == "optimizer" else "")
            )
