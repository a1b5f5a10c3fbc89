"""Critic of offline reinforcement learning: Q and V of each observation in context.

B windows, T steps, D width, A actions.
"""

from __future__ import annotations

from copy import copy, deepcopy
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Self

import torch
from torch import Tensor, nn

from icrl.config.offline_schema import CriticConfig, DecoderConfig, EncoderConfig
from icrl.contracts import EnvSpec
from icrl.nn.gpt import Context, Trunk
from icrl.nn.kv_cache import ContextCache
from icrl.nn.layers import ACTIVATIONS

if TYPE_CHECKING:
    from icrl.config.root import ModelConfig

NUM_CRITICS = 2


class Values(NamedTuple):
    """Outputs of a value network at each observation, in float32 at least."""

    q: Tensor  # [2, B, T, A]: of both critics
    value: Tensor  # [B, T]
    logits: Tensor | None  # [B, T, A]: of the policy head, if there is one

    @property
    def least_q(self) -> Tensor:
        """The lower Q of both critics, which overestimates less, `[B, T, A]`."""
        return self.q.amin(0)

    @property
    def advantage(self) -> Tensor:
        """Lower Q minus V of each action, `[B, T, A]`."""
        return self.least_q - self.value[..., None]


def trunk_config(model: ModelConfig, encoder: EncoderConfig) -> ModelConfig:
    """Options of a critic's trunk: tokens and context from `model`, everything else from `encoder`."""
    trunk = copy(model)
    for name in ("position", "embed_dim", "num_layers", "num_heads", "ff_dim", "activation"):
        setattr(trunk, name, getattr(encoder, name))
    trunk.attention_dropout = trunk.residual_dropout = trunk.embedding_dropout = encoder.dropout
    return trunk


def in_full(x: Tensor) -> Tensor:
    """`x` in float32 at least, because half precision holds no number above 65504."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class Head(nn.Sequential):
    """`num_layers` linear layers with activation and dropout between them, `[..., D] -> [..., outputs]`."""

    def __init__(self, config: DecoderConfig, width: int, num_outputs: int) -> None:
        widths = [width, *[config.ff_dim] * (config.num_layers - 1), num_outputs]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), ACTIVATIONS[config.activation](), nn.Dropout(config.dropout)]
        super().__init__(*layers[:-2])


class ValueNetwork(nn.Module):
    """Q1 and Q2, V and, if asked for, a policy on one causal trunk; with `separate_value` V has its own trunk.

    The heads share only the trunk: in a dueling form, Q = V + A, the loss of Q would move V too."""

    def __init__(
        self, model: ModelConfig, decoder: DecoderConfig, critic: CriticConfig, spec: EnvSpec, recompute: bool = False
    ) -> None:
        """`model` holds the options of the trunk (`trunk_config`); `recompute` is activation checkpointing."""
        super().__init__()
        self.config, self.spec, self.critic = model, spec, critic
        self.trunk = Trunk(model, spec, recompute)
        self.value_trunk = Trunk(model, spec, recompute) if critic.separate_value else None
        self.q_heads = nn.ModuleList(Head(decoder, model.embed_dim, spec.num_actions) for _ in range(NUM_CRITICS))
        # With backup=max, V is the largest Q and needs no parameters.
        self.value_head = Head(decoder, model.embed_dim, 1) if critic.backup == "expectile" else None
        self.policy_head = nn.Linear(model.embed_dim, spec.num_actions) if critic.imitation_scaling else None
        if critic.value_trunk_grad == "none":  # data parallel processes wait for every parameter that requires grad
            for trunk in (self.trunk if self.policy_head is None else None, self.value_trunk):
                if trunk:
                    trunk.requires_grad_(False)

    def forward(self, context: Context, caches: tuple[ContextCache, ...] = ()) -> Values:
        """Values of a context. With `caches` (`new_caches`) the steps continue them."""
        cache, *others = caches or (None,)
        hidden = self.trunk(context, cache)
        value_hidden = self.value_trunk(context, others[0] if others else None) if self.value_trunk else hidden
        logits = in_full(self.policy_head(hidden)) if self.policy_head else None
        if self.critic.value_trunk_grad == "none":
            hidden, value_hidden = hidden.detach(), value_hidden.detach()
        q = torch.stack([in_full(head(hidden)) for head in self.q_heads])
        if self.value_head:
            return Values(q, in_full(self.value_head(value_hidden)).squeeze(-1), logits)
        return Values(q, self.spec.legal_of(q.amin(0), context.obs).amax(-1), logits)  # the best legal action's

    @property
    def device(self) -> torch.device:
        return self.trunk.device

    def new_caches(self, num_streams: int) -> tuple[ContextCache, ...]:
        """Empty caches for a whole context, one per trunk."""
        trunks = (self.trunk, self.value_trunk) if self.value_trunk else (self.trunk,)
        return tuple(trunk.new_cache(num_streams) for trunk in trunks)


class Critic(nn.Module):
    """A value network, and its target network: a slow copy in eval mode, without gradient, that gives the targets.

    All state is in `state_dict`."""

    def __init__(self, online: ValueNetwork) -> None:
        super().__init__()
        self.config, self.online = online.critic, online
        self.target = deepcopy(online).requires_grad_(False).eval()
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))

    def forward(self, context: Context) -> Values:
        return self.online(context)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self.target.eval()
        return self

    @torch.no_grad()
    def after_update(self) -> None:
        """Count an optimizer step and, every `target_update_interval` steps, move the target network:
        target <- (1 - target_update_rate) target + target_update_rate online."""
        self.updates += 1
        if self.updates % self.config.target_update_interval == 0:
            self.copy_to_target(self.config.target_update_rate)

    @torch.no_grad()
    def copy_to_target(self, rate: float = 1.0) -> None:
        for slow, fast in zip(self.target.parameters(), self.online.parameters(), strict=True):
            slow.lerp_(fast, rate)
