"""Critics and trunks from checkpoints: each is built anew from what the file says of itself, and nothing else."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from src.contracts import ConfigError, EnvSpec, Json
from src.nn.critic import Critic, trunk_config
from src.nn.gpt import Trunk
from src.offline_schema import CriticConfig, DecoderConfig, EncoderConfig
from src.runtime import dtype_of, recorded
from src.schema import Config, ModelConfig
from src.training import checkpoint
from src.training.optimizers import make_optimizer

PROGRAM = "train_ilql"


def make_critic(described: Json, recompute: bool = False) -> Critic:
    """A new critic of the form that checkpoints describe: `config` and `env`."""
    config = described["config"]
    model = trunk_config(ModelConfig(**config["model"]), EncoderConfig(**config["encoder"]))
    decoder, critic = DecoderConfig(**config["decoder"]), CriticConfig(**config["critic"])
    return Critic(model, decoder, critic, EnvSpec.of(described["env"]), recompute)


def open_finished(folder: Path, kind: str, program: str, device: torch.device) -> tuple[dict[str, Any], Json]:
    """State and sidecar of the newest checkpoint of `kind` of a finished run of `program` in `folder`. Raises
    `ConfigError` where there is none."""
    found = checkpoint.load_newest(folder, kind, device)
    if found is None or not (folder / "finished.json").exists():
        raise ConfigError(f"no finished training in {folder}: run `python -m src.{program}` with the same options")
    return found


def load_critic(config: Config, device: torch.device, spec: EnvSpec | None = None) -> tuple[Critic, Json]:
    """The critic of `config.run`, which must be of the same world and split of tasks, and the sidecar of its newest
    checkpoint; as it reads a world with `spec`, if that is another. Raises `ConfigError` where there is none."""
    state, about = open_finished(config.run_folder / "ilql", "last", PROGRAM, device)
    described = about["description"]
    critic = make_critic(described | ({"env": spec._asdict()} if spec else {})).to(device, dtype_of(config))
    critic.load_state_dict(state["model"])
    return critic.eval(), about


def check_critic(config: Config, critic: Json, other: Json) -> None:
    """Raise `ConfigError` unless a critic that is so described learned in the world and on the tasks of the `other`
    model, or of the configuration that is to come, and reads as many steps."""
    where = f"the critic of run={config.run}"
    for group in ("env", "tasks"):
        for key, value in other["config"][group].items():
            if critic["config"][group].get(key) != value:
                raise ConfigError(
                    f"{where} was made with {group}.{key}={critic['config'][group].get(key)}, and what it is to guide "
                    f"with {group}.{key}={value}: they must agree"
                )
    then, now = (one["config"]["model"]["context_len"] for one in (critic, other))
    if then != now:
        raise ConfigError(f"{where} was made with model.context_len={then}, and what it is to guide with {now}")


def read_model(option: str, path: str, device: torch.device) -> tuple[dict[str, Any], Json]:
    """State of the checkpoint at `path`, which `option` names, and what it is described as. Raises `ConfigError` where
    there is none, `DamagedCheckpointError` where it is not what was written."""
    file = Path(path)
    if file.suffix != ".pt" or not file.is_file():
        raise ConfigError(f"{option}={path}: must be a checkpoint that is there, a .pt with its .json beside it")
    state, about = checkpoint.load(file.with_suffix(".json"), device)
    return state, about["description"]


def load_critic_weights(option: str, path: str, critic: Critic, device: torch.device) -> None:
    """Give `critic` all weights of another, its slow copy too."""
    state, described = read_model(option, path, device)
    if described.get("program") != PROGRAM:
        raise ConfigError(f"{option}={path}: is the model of {described.get('program')}, and must be a critic's")
    _load(critic, state["model"], f"{option}={path}")


def load_trunk(option: str, path: str, trunks: list[Trunk], device: torch.device) -> None:
    """Give each of `trunks` the weights of the trunk of another model: a critic's slow one, or all of a GPT but its
    policy head."""
    state, described = read_model(option, path, device)
    prefix = "target.trunk." if described.get("program") == PROGRAM else ""
    weights = {
        name.removeprefix(prefix): value
        for name, value in state["model"].items()
        if name.startswith(prefix) and not name.startswith("policy_head.")
    }
    for trunk in trunks:
        own = {name: value for name, value in trunk.state_dict().items() if name.startswith("policy_head.")}
        _load(trunk, weights | own, f"{option}={path}")


def load_heads(option: str, path: str, critic: Critic, device: torch.device) -> None:
    """Give `critic` the heads of another's slow copy."""
    state, described = read_model(option, path, device)
    if described.get("program") != PROGRAM:
        raise ConfigError(f"{option}={path}: is the model of {described.get('program')}, and has no critic's heads")
    slow = {name.removeprefix("target."): value for name, value in state["model"].items() if "target." in name}
    heads = {f"{copy}.{name}": slow[name] for name in slow if "_head" in name for copy in ("online", "target")}
    trunks = {name: value for name, value in critic.state_dict().items() if "_head" not in name}
    _load(critic, trunks | heads, f"{option}={path}")


def initialize(config: Config, critic: Critic, device: torch.device) -> None:
    """Start a new critic from the models that `encoder.load_from`, `decoder.load_from` or `critic.initial_model`
    name."""
    online = critic.online
    if (path := config.encoder.load_from) != "none":
        load_trunk("encoder.load_from", path, [t for t in (online.trunk, online.value_trunk) if t], device)
    if (path := config.decoder.load_from) != "none":
        load_heads("decoder.load_from", path, critic, device)
    critic.copy_to_target()
    if (path := config.critic.initial_model) != "none":
        load_critic_weights("critic.initial_model", path, critic, device)


def snapshot_state(config: Config, device: torch.device) -> dict[str, Any] | None:
    """The whole state of the snapshot that `critic.initial_model_prefix` and `initial_model_index` name, to go on from;
    None where they name none."""
    prefix, index = config.critic.initial_model_prefix, config.critic.initial_model_index
    if prefix == "none":
        return None
    option = "critic.initial_model_prefix"
    found = checkpoint.sidecars(Path(prefix), "last") + checkpoint.sidecars(Path(prefix), "snapshot")
    by_update = {int(sidecar.stem.rpartition("-")[2]): sidecar for sidecar in found}
    if not by_update:
        raise ConfigError(f"{option}={prefix}: has no snapshots")
    if index >= 0 and index not in by_update:
        there = ", ".join(str(update) for update in sorted(by_update))
        raise ConfigError(f"critic.initial_model_index={index}: {option}={prefix} has snapshots {there}")
    sidecar = by_update[max(by_update) if index < 0 else index]
    state, described = read_model(option, str(sidecar.with_suffix(".pt")), device)
    if described.get("program") != PROGRAM:
        raise ConfigError(f"{option}={prefix}: is the model of {described.get('program')}, and must be a critic's")
    _make_fit(config, state, described, f"{option}={prefix}")
    return state


def _make_fit(config: Config, state: dict[str, Any], described: Json, where: str) -> None:
    """Let the `state` of a snapshot begin with a new optimizer, if that is asked for. Raises `ConfigError` where it
    cannot be gone on from."""
    done, total, then = state["update"], config.trainer.num_iterations, described["config"]["optimizer"]["name"]
    if done > total:
        raise ConfigError(f"{where}: is of update {done}, which is more than trainer.num_iterations={total}")
    critic = make_critic({"config": recorded(config), "env": described["env"]})
    _load(critic, state["model"], where)
    if config.optimizer.initialize:
        state["updater"]["optimizer"] = make_optimizer(critic, config.optimizer).state_dict()
    elif then != config.optimizer.name:
        raise ConfigError(
            f"{where}: was made with optimizer.name={then}, not {config.optimizer.name}; optimizer.initialize=true "
            "starts anew"
        )


def _load(module: nn.Module, state: dict[str, Any], where: str) -> None:
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise ConfigError(f"{where}: does not fit the options of this run: {' '.join(str(error).split())}") from error
