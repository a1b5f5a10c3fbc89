"""Values of actions and observations in context: what offline reinforcement learning learns.

B windows, T steps, D width, A actions.
"""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Self

import torch
from torch import Tensor, nn

from icrl.config.offline_schema import CriticConfig, DecoderConfig, EncoderConfig
from icrl.config.options import replace
from icrl.contracts import EnvSpec
from icrl.nn.gpt import Context, Trunk
from icrl.nn.kv_cache import ContextCache
from icrl.nn.transformer import ACTIVATIONS

if TYPE_CHECKING:
    from icrl.config.root import ModelConfig

NUM_CRITICS = 2


class Values(NamedTuple):
    """What is known at each observation, in float32 at least."""

    q: Tensor  # [2, B, T, A]: of both critics
    value: Tensor  # [B, T]
    logits: Tensor | None  # [B, T, A]: of a policy that imitates, where there is one

    @property
    def least_q(self) -> Tensor:
        """The lower of both critics, which overestimates less, `[B, T, A]`."""
        return self.q.amin(0)

    @property
    def advantage(self) -> Tensor:
        """How much better each action is than what V expects, `[B, T, A]`."""
        return self.least_q - self.value[..., None]


def trunk_config(model: ModelConfig, encoder: EncoderConfig) -> ModelConfig:
    """The tokens and the context of `model` in a transformer of the form `encoder`."""
    return replace(
        model,
        position=encoder.position,
        embed_dim=encoder.embed_dim,
        num_layers=encoder.num_layers,
        num_heads=encoder.num_heads,
        ff_dim=encoder.ff_dim,
        activation=encoder.activation,
        attention_dropout=encoder.dropout,
        residual_dropout=encoder.dropout,
        embedding_dropout=encoder.dropout,
    )


def in_full(x: Tensor) -> Tensor:
    """In float32 where it is of less precision: a half holds no more than 65504, and squares of errors less."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class Head(nn.Sequential):
    """`num_layers` linear layers with activation and dropout between them, `[..., D] -> [..., outputs]`."""

    def __init__(self, config: DecoderConfig, width: int, num_outputs: int) -> None:
        widths = [width, *[config.ff_dim] * (config.num_layers - 1), num_outputs]
        layers: list[nn.Module] = []
        activation = ACTIVATIONS[config.activation]
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), activation(), nn.Dropout(config.dropout)]
        super().__init__(*layers[:-2])


class ValueNetwork(nn.Module):
    """Q1 and Q2, V and, if asked for, a policy on one causal trunk; V on a trunk of its own with `separate_value`.

    The heads have nothing in common but the trunk: in a dueling form, Q = V + A, the loss of Q would move V too."""

    def __init__(
        self, model: ModelConfig, decoder: DecoderConfig, critic: CriticConfig, spec: EnvSpec, recompute: bool = False
    ) -> None:
        """`model` is the form of the trunk, see `trunk_config`. `recompute`: activation checkpointing in training."""
        super().__init__()
        self.config, self.spec, self.critic = model, spec, critic
        self.trunk = Trunk(model, spec, recompute)
        self.value_trunk = Trunk(model, spec, recompute) if critic.separate_value else None
        self.q_heads = nn.ModuleList(Head(decoder, model.embed_dim, spec.num_actions) for _ in range(NUM_CRITICS))
        # Where V is the largest Q nothing is learned for it.
        self.value_head = Head(decoder, model.embed_dim, 1) if critic.backup == "expectile" else None
        self.policy_head = nn.Linear(model.embed_dim, spec.num_actions) if critic.imitation_scaling else None
        if critic.value_trunk_grad == "none":  # data parallel processes wait for all gradients that are asked for
            for trunk in (self.trunk if self.policy_head is None else None, self.value_trunk):
                if trunk:
                    trunk.requires_grad_(False)

    def forward(self, context: Context, caches: tuple[ContextCache, ...] = ()) -> Values:
        """With `caches` (`new_caches`) the steps follow those in them."""
        cache, *others = caches or (None,)
        value_cache = others[0] if others else None
        hidden = self.trunk(context, cache)
        valued = self.value_trunk(context, value_cache) if self.value_trunk else hidden
        logits = in_full(self.policy_head(hidden)) if self.policy_head else None
        if self.critic.value_trunk_grad == "none":
            hidden, valued = hidden.detach(), valued.detach()
        q = torch.stack([in_full(head(hidden)) for head in self.q_heads])
        value = in_full(self.value_head(valued)).squeeze(-1) if self.value_head else self._best(q.amin(0), context.obs)
        return Values(q, value, logits)

    def _best(self, q: Tensor, obs: Tensor) -> Tensor:
        """The largest Q of `[B, T, A]` that can be had, `[B, T]`."""
        return self.spec.legal_of(q, obs).amax(-1)

    @property
    def device(self) -> torch.device:
        return self.trunk.device

    def new_caches(self, num_streams: int) -> tuple[ContextCache, ...]:
        """Empty caches for a whole context, of each trunk."""
        trunks = (self.trunk, self.value_trunk) if self.value_trunk else (self.trunk,)
        return tuple(trunk.new_cache(num_streams) for trunk in trunks)


class Critic(nn.Module):
    """A value network and the slow copy of it that its targets come from: a copy of it at the start, always in eval
    mode, without gradient. All of it is in `state_dict`."""

    def __init__(
        self, model: ModelConfig, decoder: DecoderConfig, critic: CriticConfig, spec: EnvSpec, recompute: bool = False
    ) -> None:
        super().__init__()
        self.config = critic
        self.online = ValueNetwork(model, decoder, critic, spec, recompute)
        self.target = deepcopy(self.online).requires_grad_(False).eval()
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))

    def forward(self, context: Context) -> Values:
        return self.online(context)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self.target.eval()
        return self

    @torch.no_grad()
    def after_update(self) -> None:
        """Count a step of the optimizer and, every `target_update_interval` of them, move the targets:
        target <- (1 - target_update_rate) target + target_update_rate online."""
        self.updates += 1
        if self.updates % self.config.target_update_interval == 0:
            self.copy_to_target(self.config.target_update_rate)

    @torch.no_grad()
    def copy_to_target(self, rate: float = 1.0) -> None:
        for slow, fast in zip(self.target.parameters(), self.online.parameters(), strict=True):
            slow.lerp_(fast, rate)
