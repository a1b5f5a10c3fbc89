"""What can be played in context: models of stage two, extracted policies, and critics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from icrl.contracts import EnvSpec, Json
from icrl.nn.gpt import GPT
from icrl.nn.guided import Guided
from icrl.objectives.awr import inverse_temperature
from icrl.runs.device import dtype_of
from icrl.training.critics import PROGRAM, check_critic, load_critic, make_critic, open_finished

if TYPE_CHECKING:
    from icrl.config.root import Config, PolicyConfig

PolicyLoader = Callable[["Config", EnvSpec, dict[str, Any], torch.device], GPT | Guided]


def plain_gpt(config: Config, spec: EnvSpec, weights: dict[str, Any], device: torch.device) -> GPT:
    """A model of stage two, or an extracted policy."""
    model = GPT(config.model, spec).to(device, dtype_of(config))
    model.load_state_dict(weights)
    return model


def lone_critic(config: Config, spec: EnvSpec, weights: dict[str, Any], device: torch.device) -> Guided:
    """A critic amid training, which acts on its advantages as the policy would that `awr` extracts from it."""
    critic = make_critic(config, spec).to(device, dtype_of(config))
    critic.load_state_dict(weights)
    return Guided(None, critic.target, inverse_temperature(config.awr))


class Player(NamedTuple):
    """What `policy.model` and `policy.advantage_scale` choose to play, before it is made."""

    folder: Path  # of its checkpoints; of a guided model its own
    described: Json  # by its checkpoint
    compared: tuple[str, ...]  # groups of options that must be as it was trained with
    checksum: str
    step: int  # of the checkpoint
    suffixes: dict[str, Any]  # that tell its results from those of others
    weights: dict[str, Any] | None  # of the model; None: the critic plays alone

    def make(self, config: Config, spec: EnvSpec, device: torch.device) -> GPT | Guided:
        """As it reads a world with `spec`."""
        model = plain_gpt(config, spec, self.weights, device) if self.weights else None
        if model and not config.policy.advantage_scale:
            return model
        kind = "last" if model else config.evaluation.checkpoint
        critic, _ = load_critic(config, device, spec, kind)
        return Guided(model, critic.target, config.policy.advantage_scale)


def suffixes_of(policy: PolicyConfig) -> dict[str, Any]:
    """What folders of results say of who plays, as `transfer.suffix_of` takes it."""
    model, scale = policy.model, policy.advantage_scale
    return ({"policy": model} if model != "gpt" else {}) | ({"advantage": scale} if scale else {})


def open_player(config: Config, device: torch.device) -> Player:
    """What `config` chooses. Raises `ConfigError` where its training is not finished, or a critic does not fit the
    model that it is to guide."""
    name, scale = config.policy.model, config.policy.advantage_scale
    groups, programs = ("data", "model", "optimizer", "trainer", "device"), {"gpt": "train_gpt", "critic": PROGRAM}
    values = ("encoder", "decoder", "critic")
    own = {"gpt": ("objective",), "critic": values}.get(name, ("awr", *values))
    folder = config.run_folder / ("ilql" if name == "critic" else name)
    kind = config.evaluation.checkpoint
    state, about = open_finished(folder, kind, programs.get(name, "extract_policy"), device)
    checksum, described = about["state_sha256"], about["description"]
    if scale and name != "critic":
        _, advisor = open_finished(config.run_folder / "ilql", "last", PROGRAM, device)
        check_critic(config, advisor["description"], described)
        checksum = f"{checksum}+{advisor['state_sha256']}"
    weights = state["model"] if name != "critic" else None
    return Player(folder, described, (*groups, *own), checksum, about["step"], suffixes_of(config.policy), weights)
