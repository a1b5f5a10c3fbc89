"""Actors of TD3+BC as policies."""

from __future__ import annotations

from typing import Any

import torch

from icrl.app.root import Config
from icrl.evaluation.kinds import Kind, kinds
from icrl.extensions.td3_bc.networks import Actor, ActorAndCritics
from icrl.nn.gpt_policy import PolicyConfig
from icrl.runs.checkpoint import check_weights
from icrl.runs.device import dtype_of
from icrl.spaces import EnvSpec
from icrl.training.policy_gradient import FinetuneConfig


def actor_of(config: Config, spec: EnvSpec, weights: dict[str, Any], device: torch.device) -> Actor:
    """Loader of an actor. Raises `ConfigError` if the weights are not those of an actor and its critics."""
    check_weights(networks := ActorAndCritics(config.model, spec), weights)
    networks.load_state_dict(weights)
    return networks.online.actor.to(device, dtype_of(config))


@kinds("td3_bc")
def actor_kind(policy: PolicyConfig, finetune: FinetuneConfig) -> Kind | None:
    """The actor, if it is asked for by its name alone."""
    if policy.model == "td3_bc" and not policy.advantage_scale:
        return Kind("td3_bc", "train_td3_bc", ("objective",), {}, actor_of)
    return None
