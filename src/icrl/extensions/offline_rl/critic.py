"""Critic of offline reinforcement learning: Q and V of each observation in context.

B windows, T steps, D width, A actions.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Literal, NamedTuple, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from icrl.config.options import NO_EFFECT, Options, Text, option, refuse, replace
from icrl.extensions.value_sources.targets import WithTarget
from icrl.nn.cache import Cache, TokenCache
from icrl.nn.gpt import Context, GPTConfig, Trunk, check_discrete, check_heads
from icrl.nn.networks import in_float32
from icrl.spaces import EnvSpec

NUM_CRITICS = 2
_WITHOUT_VALUE = {"v_loss_scaling": 0.0, "expectile": 0.5, "separate_value": False}  # options that a lone Q must have


class EncoderConfig(Options):
    """Options of a critic's trunk; its kind, tokens and context length are those of the model."""

    position: Literal["env_time", "learned", "sinusoidal", "rope", "none"] = option(
        "learned", "position code: env time step embedding, learned absolute, sinusoidal, rotary, or none"
    )
    embed_dim: int = option(512, "width of the residual stream", ge=1, le=2**16)
    num_heads: int = option(8, "attention heads; must divide encoder.embed_dim", ge=1, le=2**16)
    ff_dim: int = option(2048, "width of the feed-forward layer", ge=1, le=2**20)
    dropout: float = option(0.1, "dropout on embeddings, attention weights and the outputs of a block", ge=0, le=0.99)
    num_layers: int = option(8, "transformer blocks", ge=1, le=1000)

    former = {"activation": "gelu", "load_from": NO_EFFECT}

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_heads("encoder", self.num_heads, self.embed_dim, self.position)
        return self


class DecoderConfig(Options):
    """Options of the heads of a critic: each of Q1, Q2 and V."""

    num_layers: int = option(2, "linear layers of a head", ge=1, le=1000)
    ff_dim: int = option(256, "width of the hidden layers (0 for a single layer)", ge=0, le=2**20)
    dropout: float = option(0.0, "dropout between the layers", ge=0, le=0.99)

    former = {"activation": "gelu", "load_from": NO_EFFECT}

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("ff_dim", "dropout") if self.num_layers == 1 else ():
            given = f"decoder.{name}={getattr(self, name)}"
            refuse(getattr(self, name), f"{given} has no effect with decoder.num_layers=1: must be 0")
        width = f"decoder.ff_dim=0: decoder.num_layers={self.num_layers} needs a width between them"
        refuse(self.num_layers > 1 and not self.ff_dim, width)
        return self


class CriticConfig(Options):
    """Options of the values of a critic, and of how it learns them."""

    backup: Literal["expectile", "max"] = option(
        "expectile", "value of the next state. expectile: V, an expectile of Q of the actions taken; max: the largest Q"
    )
    separate_value: bool = option(False, "V has a trunk of its own (IQL)")
    expectile: float = option(
        0.8, "expectile of Q that V learns. 0.5: the mean; towards 1: the maximum", gt=0, le=0.9999
    )
    discount_factor: float = option(0.9, "discount factor of the return", gt=0, le=1)
    horizon: Literal["episode", "across_episodes"] = option(
        "episode",
        "episode: the return ends with the episode; across_episodes: it continues, so that exploration has value",
    )
    return_lambda: float = option(
        0.9, "lambda of the returns. 0: bootstrap after one step; 1: faster, but values the source's policy", ge=0, le=1
    )
    reward_plugin: Annotated[Text, "a name or a path"] = option(
        "identity", "reward to learn from: identity, the recorded one, or a Python file with get_reward"
    )
    v_loss_scaling: float = option(1.0, "weight of the expectile loss of V", ge=0)
    conservative_scaling: float = option(0.0, "weight of the cross-entropy that pushes Q of other actions down", ge=0)
    target_update_rate: float = option(0.2, "step of the target networks towards the networks (1: a copy)", gt=0, le=1)

    former = {
        **{"q_loss_scaling": 1.0, "imitation_scaling": 0.0, "value_trunk_grad": "full"},
        **{"discount_per": "step", "target_update_interval": 1, "reward_scale": 1.0},
        **dict.fromkeys(("initial_model", "initial_model_prefix", "initial_model_index"), NO_EFFECT),
    }

    @model_validator(mode="after")
    def _check(self) -> Self:
        unlearned = "critic.v_loss_scaling=0 never learns V, which critic.backup=expectile needs"
        refuse(self.backup == "expectile" and not self.v_loss_scaling, unlearned)
        for name, only in _WITHOUT_VALUE.items() if self.backup == "max" else ():
            given = f"critic.{name}={getattr(self, name)}: critic.backup=max has no V to learn"
            refuse(getattr(self, name) != only, f"{given}; must be {only}".replace("True", "true"))
        return self


class Values(NamedTuple):
    """Outputs of a value network at each observation, in float32 at least."""

    q: Tensor  # [2, B, T, A]: of both critics
    value: Tensor  # [B, T]

    @property
    def least_q(self) -> Tensor:
        """The lower Q of both critics, which overestimates less, `[B, T, A]`."""
        return self.q.amin(0)

    @property
    def advantage(self) -> Tensor:
        """Lower Q minus V of each action, `[B, T, A]`."""
        return self.least_q - self.value[..., None]


def trunk_config(model: GPTConfig, encoder: EncoderConfig) -> GPTConfig:
    """Options of a critic's trunk: its kind, tokens and context from `model`, everything else from `encoder`."""
    names = ("position", "embed_dim", "num_layers", "num_heads", "ff_dim")
    dropouts = dict.fromkeys(("attention_dropout", "residual_dropout", "embedding_dropout"), encoder.dropout)
    return replace(model, head="auto", num_kv_heads=0, **{name: getattr(encoder, name) for name in names}, **dropouts)


class Head(nn.Sequential):
    """`num_layers` linear layers with GELU and dropout between them, `[..., D] -> [..., outputs]`."""

    def __init__(self, config: DecoderConfig, width: int, num_outputs: int) -> None:
        widths = [width, *[config.ff_dim] * (config.num_layers - 1), num_outputs]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.GELU(), nn.Dropout(config.dropout)]
        super().__init__(*layers[:-2])


class ValueNetwork(nn.Module):
    """Q1, Q2 and V on one causal trunk; with `separate_value` V has its own trunk.

    The heads share only the trunk: in a dueling form, Q = V + A, the loss of Q would move V too."""

    def __init__(
        self, model: GPTConfig, decoder: DecoderConfig, critic: CriticConfig, spec: EnvSpec, recompute: bool = False
    ) -> None:
        """`model` holds the options of the trunk (`trunk_config`); `recompute` is activation checkpointing."""
        super().__init__()
        check_discrete("a critic", spec)
        self.config, self.spec, self.critic = model, spec, critic
        self.trunk = Trunk(model, spec, recompute)
        self.value_trunk = Trunk(model, spec, recompute) if critic.separate_value else None
        self.q_heads = nn.ModuleList(Head(decoder, model.embed_dim, spec.num_actions) for _ in range(NUM_CRITICS))
        # With backup=max, V is the largest Q and needs no parameters.
        self.value_head = Head(decoder, model.embed_dim, 1) if critic.backup == "expectile" else None

    def forward(self, context: Context, cache: Sequence[TokenCache] = ()) -> Values:
        """Values of a context. With a cache the T steps continue it."""
        hidden = value_hidden = self.trunk(context, cache)
        if self.value_trunk:
            value_hidden = self.value_trunk(context, cache[len(cache) // 2 :])
        q = torch.stack([in_float32(head(hidden)) for head in self.q_heads])
        if self.value_head:
            return Values(q, in_float32(self.value_head(value_hidden)).squeeze(-1))
        return Values(q, self.spec.legal_of(q.amin(0), context.obs).amax(-1))  # the best legal action's

    def new_cache(self, num_streams: int) -> Cache:
        """An empty cache for a whole context, of one trunk after the other."""
        return Cache(one for trunk in (self.trunk, self.value_trunk) if trunk for one in trunk.new_cache(num_streams))


class Critic(WithTarget):
    """A value network, and its target network, which gives the targets."""

    online: ValueNetwork
    target: ValueNetwork

    def __init__(self, online: ValueNetwork) -> None:
        super().__init__(online, online.critic.target_update_rate)
        self.config = online.critic
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))

    def after_update(self) -> None:
        super().after_update()
        self.updates += 1
