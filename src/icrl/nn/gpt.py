"""The in-context model: environment steps in, action logits out.

B streams, T environment steps in context, D width, A actions. A step becomes N tokens, one or three:

    transition    previous obs + previous action + previous reward + obs_t    (one token, embeddings added)
    interleaved   previous action, previous reward, obs_t                     (three tokens)
    cross         the same three, as streams with parameters of their own     (see `transformer.py`)

The interleaved form is the sequence reward, state, action, reward, state, action, ... of a Decision Transformer without
return-to-go. An action is predicted from the token of the observation it answers. With `induction` that token first
reads what followed earlier visits to its observation, in a layer of an extension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from gymnasium.spaces import Discrete
from pydantic import BeforeValidator, model_validator
from torch import Tensor, nn

from icrl.config.modules import load_plugins
from icrl.config.options import OR_ELSEWHERE, OneOf, Options, option, refuse
from icrl.nn.cache import Cache, TokenCache
from icrl.nn.encoders import OBS_ENCODINGS, OWN, draw_corners, encode_reward, obs_encoder, table
from icrl.nn.heads import HEADS, make_head
from icrl.nn.transformer import NUM_STREAMS, TRUNKS, Transformer, sinusoids
from icrl.spaces import EnvSpec

INDUCTION: list[Any] = []  # class of the layer that `model.induction` adds, of an extension
CACHES: list[Callable[..., TokenCache | None]] = []  # of extensions: faster cache of a model for streams, or None


class GPTConfig(Options):
    tokens: Literal["transition", "interleaved", "cross"] = option(
        "transition",
        "transition: one token per step, with the previous obs, action and reward and the current obs; interleaved: "
        "three tokens, previous action, previous reward, obs; cross: a stream for each of these, with cross-attention",
    )
    trunk: Annotated[str, OneOf(("transformer",), r"\w+", "the name of a layer of an extension, or of yours")] = option(
        "transformer",
        "layer through which a step reads earlier steps. transformer: attention; other names: a layer in its place",
    )
    position: Literal["env_time", "learned", "sinusoidal", "rope", "none"] = option(
        "env_time", "position code: env time step embedding, learned absolute, sinusoidal, rotary, or none"
    )
    add_env_time: bool = option(True, "add the env time step embedding to another position code, but not to none")
    obs_encoding: Annotated[str, OneOf(OBS_ENCODINGS, r"\w+", "the name of an encoder of yours")] = option(
        "coordinates",
        "encoding of Discrete observations. cell: one vector per observation (also in worlds without a square "
        "room); coordinates: the sum of those of row, column and the rest; smooth: the same, but neighbouring rows "
        "and columns share parts of their vectors; framed: coordinates in a grid of side model.max_size, with the "
        "room at random places during training and in the middle afterwards, so that larger rooms can be read; for "
        "any observations: an encoder that your module= registers",
    )
    head: Annotated[str, OneOf(("auto", "gaussian", "binned"), r"\w+", "the name of a head of an extension")] = option(
        "auto",
        "distribution of actions. In a Box, gaussian: a Gaussian squashed into the bounds; binned: a histogram of "
        "model.num_bins bins per number, which can have several modes. auto: in a Box binned, else categorical",
    )
    num_bins: int = option(64, "bins of each number of an action if model.head is binned", ge=2, le=4096)
    max_size: int = option(17, "largest side of a room that the model can read by rows and columns", ge=2, le=64)
    induction: Annotated[int, BeforeValidator(lambda given: given * 1 if isinstance(given, bool) else given)] = option(
        0, "first layers that look up what followed earlier visits, each a step further ahead (0: none)", ge=0, le=64
    )
    binding: bool = option(
        False,
        "add to a previous action the product of its vector and those of what followed, so that a mean over steps "
        "still tells which action led to what: for bandits and random MDPs",
    )
    context_len: int = option(160, "env steps in the context, across episodes", ge=2, le=10**6)
    embed_dim: int = option(64, "width of the residual stream", ge=1, le=2**16)
    num_layers: int = option(4, "transformer blocks", ge=1, le=1000)
    num_heads: int = option(4, "heads of model.trunk; must divide model.embed_dim", ge=1, le=2**16)
    num_kv_heads: int = option(
        0, "heads of keys and values, shared by groups of attention heads (0: one for each; 1: multi-query)", ge=0
    )
    ff_dim: int = option(256, "width of the feed-forward layer", ge=1, le=2**20)
    attention_dropout: float = option(0.0, "dropout on attention weights", ge=0, le=0.99)
    residual_dropout: float = option(0.0, "dropout on the outputs of a block, before they are added", ge=0, le=0.99)
    embedding_dropout: float = option(0.0, "dropout on token embeddings", ge=0, le=0.99)

    former = {"reward_encoding": "auto", "activation": "gelu"}

    @model_validator(mode="after")
    def _check(self) -> Self:
        load_plugins()
        for name, known in {"trunk": TRUNKS, "head": HEADS, "obs_encoding": (*OBS_ENCODINGS, *OWN)}.items():
            given = f"model.{name}={getattr(self, name)}"
            refuse(getattr(self, name) not in known, f"{given}: must be one of {', '.join(known)}{OR_ELSEWHERE}")
        check_heads("model", self.num_heads, self.embed_dim, self.position)
        lacking = "model.position=env_time needs the embedding that model.add_env_time=false leaves out"
        refuse(self.position == "env_time" and not self.add_env_time, lacking)
        shared = f"model.num_kv_heads={self.num_kv_heads} must divide model.num_heads={self.num_heads}, or be 0"
        refuse(self.num_heads % self.kv_heads, shared)
        for name, value in (("tokens", "cross"), ("position", "rope")):
            given = f"model.{name}={value} is a form of attention: it needs model.trunk=transformer, not {self.trunk}"
            refuse(self.trunk != "transformer" and getattr(self, name) == value, given)
        return self

    @property
    def kv_heads(self) -> int:
        return self.num_kv_heads or self.num_heads

    @property
    def head_dim(self) -> int:
        return self.embed_dim // self.num_heads


def check_heads(name: str, heads: int, width: int, position: str) -> None:
    """Refuse a width that the heads cannot share, with this position code; `name` is the group of the options."""
    refuse(width % heads, f"{name}.num_heads={heads} must divide {name}.embed_dim={width}")
    rotary = f"{name}.position=rope needs an even {name}.embed_dim / {name}.num_heads, not {width} / {heads}"
    refuse(position == "rope" and width // heads % 2, rotary)


def check_spaces(config: GPTConfig, spec: EnvSpec) -> None:
    """Refuse options that the spaces of a world do not allow."""
    obs_encoder(config, spec)  # raises
    space, off = spec.observation_space, "give model.induction=0"
    lacking = f"model.induction={config.induction} needs a layer of an extension that is not installed: {off}"
    refuse(config.induction and not INDUCTION, lacking)
    numbered = f"model.induction={config.induction} needs Discrete observations, and these are in {space}: {off}"
    refuse(config.induction and not isinstance(space, Discrete), numbered)
    make_head(config, spec)  # raises, too


def check_discrete(what: str, spec: EnvSpec) -> None:
    """Refuse `what`, the beginning of a message, in a world whose actions, observations or rewards are no integers."""
    rewards = f"{spec.num_rewards or 'any number of'} rewards"
    has = f"this world has actions in {spec.action_space}, observations in {spec.observation_space} and {rewards}"
    needs = "needs Discrete actions, observations of integers and a list of rewards"
    refuse(not spec.is_discrete, f"{what} {needs}; {has}")


class Window(NamedTuple):
    """Transitions `[B, T, ...]` in the dtypes of `contracts.Step`."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    timestep: Tensor

    @classmethod
    def empty(cls, spec: EnvSpec, num_streams: int, num_steps: int, device: torch.device) -> Self:
        """Zeros for `num_steps` steps of a world with `spec`."""
        shapes = (spec.obs_shape, spec.action_shape, (), ())
        dtypes = (spec.obs_dtype, spec.action_dtype, torch.float32, torch.int64)
        each = zip(shapes, dtypes, strict=True)
        return cls(*(torch.zeros(num_streams, num_steps, *shape, dtype=kind, device=device) for shape, kind in each))

    @classmethod
    def of(cls, steps: Any) -> Self:
        """The columns of a `Batch` `[B, T, ...]`, or of anything with these names."""
        return cls(steps.obs, steps.action, steps.reward, steps.timestep)

    def at(self, where: Any) -> Self:
        """The index `where` of each column."""
        return self._make(column[where] for column in self)

    def write(self, where: Any, other: Window) -> None:
        """Write the columns of `other` at the index `where`, in place."""
        for column, new in zip(self, other, strict=True):
            column[where] = new


class Context(NamedTuple):
    """Model input at each step, `[B, T, ...]` each. The first step of a context has no previous transition: what is
    there for its action and reward means nothing, and its previous obs and timestep are its own."""

    prev_obs: Tensor
    prev_action: Tensor
    prev_reward: Tensor
    prev_timestep: Tensor
    obs: Tensor
    timestep: Tensor
    first: Tensor  # bool


def context_of(window: Window) -> Context:
    """Context of a window. The last action and reward are not in it."""
    first = torch.zeros_like(window.timestep, dtype=torch.bool)
    first[:, 0] = True
    before = (torch.cat([column[:, :1], column[:, :-1]], dim=1) for column in window)  # encoders mask the first step
    return Context(*before, obs=window.obs, timestep=window.timestep, first=first)


class Trunk(nn.Module):
    """Embeddings and transformer: a context in, one vector per step out. `model.trunk` names its layers alone."""

    cache_dtype: torch.dtype | None = None  # of a faster cache, if another than that of the parameters

    def __init__(self, config: GPTConfig, spec: EnvSpec, recompute: bool = False) -> None:
        super().__init__()  # `recompute`: activation checkpointing in training
        self.config, self.spec, width = config, spec, config.embed_dim
        self.tokens_per_step = 1 if config.tokens == "transition" else NUM_STREAMS
        check_spaces(config, spec)
        encoder = obs_encoder(config, spec)
        self.obs = encoder(config, spec)
        self.prev_obs = encoder(config, spec) if config.tokens == "transition" else None
        self.prev_action, self.prev_reward = make_head(config, spec).encoder(width), encode_reward(config, spec)
        timed = config.add_env_time and config.position != "none"
        self.env_time = table(spec.max_episode_steps, width) if timed else None
        self.position: Callable[[Tensor], Tensor] | None = None
        if config.position == "learned":
            self.position = table(config.context_len, width)
        elif config.position == "sinusoidal":
            self.position = partial(sinusoids, width)
        self.dropout = nn.Dropout(config.embedding_dropout)
        self.transformer = Transformer(config, recompute)
        self.induction = INDUCTION[-1](config) if config.induction else None

    def forward(self, context: Context, cache: Sequence[TokenCache] = ()) -> Tensor:
        """Vectors `[B, T, D]`. With a cache the T steps continue it. Raises `RuntimeError` for one in training mode."""
        if cache and self.training:  # each call draws its own places of a framed room
            raise RuntimeError("a cache is for a model in eval mode: call eval() first")
        tokens = self._tokens(context, cache)  # [B, T, N, D]
        hidden = self.transformer(tokens.flatten(1, 2), cache[0] if cache else None)
        return hidden[:, NUM_STREAMS - 1 :: NUM_STREAMS] if self.config.tokens == "interleaved" else hidden

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def new_cache(self, num_streams: int) -> Cache:
        """An empty cache for a whole context. Subclasses may append caches of their own."""
        config, like, layer = self.config, next(self.parameters()), TRUNKS[self.config.trunk]
        tokens = next((made for make in CACHES if (made := make(self, num_streams))), None)
        if tokens is None:
            shapes = layer.cache_shapes(config, config.context_len * self.tokens_per_step)
            tokens = layer.cache(*(like.new_empty(config.num_layers, num_streams, *shape) for shape in shapes))
        like = like.to(self.cache_dtype) if self.cache_dtype and like.is_cpu else like
        visits = [self.induction.new_cache(config, num_streams, like)] if self.induction else []
        return Cache([tokens, *visits])

    def _tokens(self, context: Context, cache: Sequence[TokenCache]) -> Tensor:
        """Tokens `[B, T, N, D]` of the steps; the induction layer adds to the last token of each step."""
        corners = draw_corners(self.obs, len(context.obs), context.obs.device)
        obs, action = self.obs(context.obs, corners), self.prev_action(context.prev_action, context.first)
        reward = self.prev_reward(context.prev_reward, context.first)
        unit = F.layer_norm(action, action.shape[-1:]) if self.config.binding else None
        if unit is not None:  # a mean of plain sums over steps does not tell which action was rewarded
            action = action + unit * (reward + obs)
        outcome = action + reward + obs
        if self.position is not None:
            first = cache[0].length // self.tokens_per_step if cache else 0
            steps = torch.arange(first, first + obs.shape[1], device=obs.device)
            obs, action, reward = (token + self.position(steps) for token in (obs, action, reward))
        if self.env_time is not None:
            now = self.env_time(context.timestep)
            obs, reward, action = obs + now, reward + now, action + self.env_time(context.prev_timestep)
        parts = [action, reward, obs]
        if self.prev_obs is not None:
            parts = [self.prev_obs(context.prev_obs, corners) + action + reward + obs]
        tokens = self.dropout(torch.stack(parts, dim=2))
        if self.induction is None:
            return tokens
        found = self.induction(tokens[:, :, -1], outcome, context, unit, cache[1] if cache else None)
        return tokens + F.pad(found[:, :, None], (0, 0, self.tokens_per_step - 1, 0))


class GPT(Trunk):
    """The in-context policy: a trunk, and a linear layer to parameters of the `head` (of Discrete actions: logits)."""

    def __init__(self, config: GPTConfig, spec: EnvSpec, recompute: bool = False) -> None:
        super().__init__(config, spec, recompute)
        self.head = make_head(config, spec)
        self.policy_head = nn.Linear(config.embed_dim, self.head.num_parameters)

    def forward(self, context: Context, cache: Sequence[TokenCache] = ()) -> Tensor:
        """Parameters `[B, T, P]` of the head, of a context."""
        return self.policy_head(super().forward(context, cache))


def make_gpt(config: GPTConfig, spec: EnvSpec, recompute: bool = False) -> GPT:
    """A new `GPT`, or the model of an extension that belongs to its head."""
    return (make_head(config, spec).model or GPT)(config, spec, recompute)
