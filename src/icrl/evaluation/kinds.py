"""Kinds of trained policies: what trains them, and how their checkpoints act.

`policy.model` and other options of the policy choose one. An extension adds kinds by a function under the decorator
`@kinds(*names)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from icrl.config.modules import load_plugins
from icrl.config.options import OR_ELSEWHERE, refuse
from icrl.contracts import ConfigError, Json
from icrl.nn.gpt import GPT, make_gpt
from icrl.nn.gpt_policy import Acting, PolicyConfig
from icrl.nn.networks import Unfilled
from icrl.runs.checkpoint import check_weights, open_model
from icrl.runs.device import dtype_of
from icrl.spaces import EnvSpec
from icrl.training.policy_gradient import BESIDE, FinetuneConfig

if TYPE_CHECKING:
    from icrl.app.root import Config

PolicyLoader = Callable[[Any, EnvSpec, dict[str, Any], torch.device], GPT | Acting]
# Readers of folders that hold a model and are no runs, by the file that tells them. They return the weights, the
# sidecar of the checkpoint that these are from, and the path of that; extensions add some.
READERS: dict[str, Callable[[Path], tuple[dict[str, Any], Json, Path]]] = {}


def plain_gpt(config: Config, spec: EnvSpec, weights: dict[str, Any], device: torch.device) -> GPT:
    """Loader of a sequence model by itself. Raises `ConfigError` if the weights are not those of one."""
    refuse(not isinstance(weights, dict), f"the weights of a model must be a dict, not a {type(weights).__name__}")
    weights = {name: one for name, one in weights.items() if str(name).partition(".")[0] != BESIDE}
    with Unfilled():
        check_weights(model := make_gpt(config.model, spec), weights)
    model.load_state_dict(weights)
    return model.to(device, dtype_of(config))


class TrainedPolicy(NamedTuple):
    """The checkpoint that the options of the policy choose, before a model is made of it."""

    folder: Path  # of its checkpoints
    described: Json  # description in the checkpoint
    compared: tuple[str, ...]  # groups of options that must equal those of the training
    checksum: str
    step: int  # of the checkpoint
    is_plain: bool  # whether it is a sequence model by itself
    make: Callable[[Config, EnvSpec, torch.device], GPT | Acting]  # the model for a world


def policy_suffixes(config: Config) -> dict[str, Any]:
    """Options of the policy in the name of a results folder, for `suffix_of`."""
    model, scale, update = config.policy.model, config.policy.advantage_scale, config.evaluation.checkpoint
    suffixes = ({"policy": model} if model != "gpt" else {}) | ({"advantage": scale} if scale else {})
    return suffixes | ({"update": update} if isinstance(update, int) else {})


@dataclass(frozen=True)
class Kind:
    """Sequence models that a program trains."""

    folder: str  # of a run, with the checkpoints
    program: str
    compared: tuple[str, ...]  # groups of options of this program alone
    before: Mapping[str, str]  # other parts that must be trained: folders of a run, and the programs that fill them
    load: PolicyLoader = plain_gpt

    @property
    def parts(self) -> dict[str, str]:
        """All parts that must be trained before the policy acts, in order, as in `before`."""
        return {**self.before, self.folder: self.program}

    def open(self, config: Config, device: torch.device) -> TrainedPolicy:
        """The policy of the run that `config` names. Raises `ConfigError` if its training is not finished."""
        folder = config.run_folder / self.folder
        state, about = open_model(folder, config.evaluation.checkpoint, self.program, device)
        compared = ("data", "model", "optimizer", "trainer", "device", *self.compared)

        def make(config: Config, spec: EnvSpec, device: torch.device) -> GPT | Acting:
            return self.load(config, spec, state["model"], device)

        about_it = (about["description"], compared, about["state_sha256"], about["step"], self.load is plain_gpt)
        return TrainedPolicy(folder, *about_it, make)


Chooser = Callable[[PolicyConfig, FinetuneConfig], Kind | None]
_OTHERS: dict[Chooser, tuple[str, ...]] = {}


def kinds(*names: str) -> Callable[[Chooser], Chooser]:
    """Decorator of a function that finds kinds of an extension, or None; `names` are values of `policy.model`."""

    def register(chooser: Chooser) -> Chooser:
        _OTHERS[chooser] = names
        return chooser

    return register


def policy_kind(policy: PolicyConfig, finetune: FinetuneConfig) -> Kind:
    """The kind of policy that the options choose. Raises `ConfigError` if there is none."""
    load_plugins()
    own = None if policy.advantage_scale else own_kind(policy.model, finetune)
    if kind := next((kind for chooser in _OTHERS if (kind := chooser(policy, finetune))), own):
        return kind
    known = ", ".join(["gpt", "finetuned", *(name for names in _OTHERS.values() for name in names)])
    given = f"policy.model={policy.model} with policy.advantage_scale={policy.advantage_scale}"
    raise ConfigError(f"{given}: must be one of {known}{OR_ELSEWHERE}")


def own_kind(model: str, finetune: FinetuneConfig) -> Kind | None:
    """The kind of the core that `policy.model=model` stands for."""
    if model == "gpt":
        return Kind("gpt", "train_gpt", ("objective",), {})
    if model == "finetuned":
        before = {"gpt": "train_gpt"} if finetune.start == "gpt" else {}
        return Kind(model, "finetune", ("objective", "finetune"), before)
    return None
