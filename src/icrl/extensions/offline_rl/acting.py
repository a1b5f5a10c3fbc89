"""Policies of offline RL: an extracted one, a critic alone, and a sequence model that a critic guides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from icrl.app.root import Config
from icrl.contracts import ConfigError
from icrl.evaluation.kinds import Kind, TrainedPolicy, kinds, own_kind
from icrl.extensions.offline_rl.critic import ValueNetwork
from icrl.extensions.offline_rl.critics import PROGRAM, check_critic, load_critic, make_critic
from icrl.extensions.offline_rl.options import OfflineConfig
from icrl.nn.cache import Cache, TokenCache
from icrl.nn.gpt import GPT, Context
from icrl.nn.gpt_policy import Acting, PolicyConfig
from icrl.runs.checkpoint import open_model
from icrl.runs.device import dtype_of
from icrl.spaces import EnvSpec
from icrl.training.policy_gradient import FinetuneConfig


class Guided(Acting):
    """pi(a | context) ~ prior(a | context) exp(scale (min(Q1, Q2)(o, a) - V(o)))  (Snell et al., 2022), with the
    interface of a GPT. The prior is another model of the same context length, or uniform."""

    def __init__(self, prior: GPT | None, critic: ValueNetwork, scale: float) -> None:
        super().__init__()
        self.prior, self.critic, self.scale = prior, critic, scale
        self.config, self.spec = critic.config, critic.spec

    def forward(self, context: Context, cache: Sequence[TokenCache] = ()) -> Tensor:
        """Action logits `[B, T, A]`. With a cache the T steps continue it."""
        values = self.critic(context, cache[1 + bool(self.prior.induction) :] if self.prior else cache)
        guidance = self.scale * values.advantage
        return self.prior(context, cache) + guidance if self.prior else guidance

    def new_cache(self, num_streams: int) -> Cache:
        """An empty cache for a whole context, of the prior before the critic."""
        return Cache(one for model in (self.prior, self.critic) if model for one in model.new_cache(num_streams))


def lone_critic(config: OfflineConfig, spec: EnvSpec, weights: dict[str, Any], device: torch.device) -> Guided:
    """Loader of a critic in training, which acts by its advantages alone, times awr.inverse_temperature."""
    critic = make_critic(config, spec).to(device, dtype_of(config))
    critic.load_state_dict(weights)
    return Guided(None, critic.target, config.awr.inverse_temperature)


def no_policy(config: Config, spec: EnvSpec, weights: dict[str, Any], device: torch.device) -> Guided:
    """Refusal to load a critic by its weights alone."""
    raise ConfigError("a critic acts only in `evaluate`: give model=gpt, or another model without a critic")


class CriticKind(Kind):
    """Critics that act alone, on their advantages times `policy.advantage_scale`."""

    def open(self, config: Config, device: torch.device) -> TrainedPolicy:
        """The critic as a policy, with the options of its record."""

        def make(config: Config, spec: EnvSpec, device: torch.device) -> Guided:
            critic, _ = load_critic(config, device, spec, config.evaluation.checkpoint)
            return Guided(None, critic.target, config.policy.advantage_scale)

        return super().open(config, device)._replace(make=make)


@dataclass(frozen=True)
class GuidedKind(Kind):
    """Sequence models of the kind `prior`, guided by a critic of the same run."""

    prior: Kind = field(kw_only=True)

    @property
    def parts(self) -> dict[str, str]:
        """Those of the prior, and the critic."""
        return {**self.prior.parts, "ilql": PROGRAM}

    def open(self, config: Config, device: torch.device) -> TrainedPolicy:
        """The guided policy. Raises `ConfigError` if the critic does not fit the model."""
        opened = self.prior.open(config, device)
        _, advisor = open_model(config.run_folder / "ilql", "last", PROGRAM, device)
        check_critic(config, advisor["description"], opened.described)
        checksum = f"{opened.checksum}+{advisor['state_sha256']}"

        def make(config: Config, spec: EnvSpec, device: torch.device) -> Guided:
            critic, prior = load_critic(config, device, spec)[0], opened.make(config, spec, device)
            assert isinstance(prior, GPT)
            return Guided(prior, critic.target, config.policy.advantage_scale)

        return opened._replace(checksum=checksum, is_plain=False, make=make)


@kinds("critic", "awr")
def offline_kind(policy: PolicyConfig, finetune: FinetuneConfig) -> Kind | None:
    """A critic alone, an extracted policy, or a sequence model with a critic."""
    if policy.model == "critic":
        return CriticKind("ilql", PROGRAM, (), {}, no_policy)
    extracted = Kind("awr", "extract_policy", (), {"ilql": PROGRAM}) if policy.model == "awr" else None
    prior = extracted or own_kind(policy.model, finetune)
    if prior and policy.advantage_scale:
        return GuidedKind(prior.folder, prior.program, prior.compared, prior.before, no_policy, prior=prior)
    return extracted
