"""The in-context model: environment steps in, action logits out.

B streams, T environment steps in context, D width, A actions. A step becomes N tokens, one or three:

    transition    previous obs + previous action + previous reward + obs_t    (one token, embeddings added)
    interleaved   previous action, previous reward, obs_t                     (three tokens)
    cross         the same three, as streams with parameters of their own     (see `cross.py`)

The interleaved form is the sequence reward, state, action, reward, state, action, ... of a Decision Transformer without
return-to-go; an action is predicted where the observation it answers has been read. With `induction` that token is
first told what came of earlier visits to its observation (see `induction.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icrl.contracts import EnvSpec
from icrl.nn.cross import NUM_STREAMS, CrossTransformer
from icrl.nn.induction import NO_VISIT, Induction
from icrl.nn.kv_cache import ContextCache, KVCache, VisitCache
from icrl.nn.points import point_features, point_flags, pool
from icrl.nn.transformer import Transformer

if TYPE_CHECKING:
    from icrl.config.root import ModelConfig

_STD = 0.02  # of embeddings at the start


ACTION, REWARD, TIMESTEP, OBS = range(4)  # the rows of windows; those from OBS on are the numbers of an observation


class Context(NamedTuple):
    """What the model reads at each step, int64 `[B, T]` each (observations may be `[B, T, K]`). The first step of a
    context has no previous transition: its previous action and reward are the numbers after the last valid ones, its
    previous obs and timestep its own."""

    prev_obs: Tensor
    prev_action: Tensor
    prev_reward: Tensor
    prev_timestep: Tensor
    obs: Tensor
    timestep: Tensor


def context_of(spec: EnvSpec, obs: Tensor, action: Tensor, reward: Tensor, timestep: Tensor) -> Context:
    """The context of a window of transitions, integers `[B, T]` each, observations perhaps `[B, T, K]`; the last action
    and reward are not in it."""
    obs, action, reward, timestep = (column.long() for column in (obs, action, reward, timestep))

    def shifted(column: Tensor, first: Tensor) -> Tensor:
        return torch.cat([first, column[:, :-1]], dim=1)

    none = torch.ones_like(action[:, :1])
    return Context(
        prev_obs=shifted(obs, obs[:, :1]),
        prev_action=shifted(action, none * spec.num_actions),
        prev_reward=shifted(reward, none * spec.num_rewards),
        prev_timestep=shifted(timestep, timestep[:, :1]),
        obs=obs,
        timestep=timestep,
    )


def windows_of(obs: Tensor, action: Tensor, reward: Tensor, timestep: Tensor) -> Tensor:
    """Columns `[B, T]`, the first perhaps `[B, T, K]`, as one tensor `[rows, B, T]` int64."""
    numbers = obs[..., None] if obs.ndim == 2 else obs
    return torch.cat([torch.stack([action, reward, timestep]).long(), numbers.movedim(-1, 0).long()])


def context_in(spec: EnvSpec, window: Tensor) -> Context:
    """The context of what `windows_of` gives."""
    obs = window[OBS:].movedim(0, -1) if spec.obs_shape else window[OBS]
    return context_of(spec, obs, window[ACTION], window[REWARD], window[TIMESTEP])


class ObsEmbedding(nn.Module):
    """An observation's own vector, or the sum of its row's, its column's and, where there are several layers, its
    layer's.

    Framed, rows and columns are those of a grid of side `max_size` that the room lies in: in training each window
    draws a place for it, uniformly from all that fit, with torch's global generator; otherwise it is the middle."""

    def __init__(self, config: ModelConfig, spec: EnvSpec) -> None:
        super().__init__()
        self.width = 0 if config.obs_encoding == "cell" else spec.width
        self.slack = config.max_size - self.width if self.width and config.obs_encoding == "framed" else 0
        sizes = [config.max_size, config.max_size] if self.width else [spec.num_obs]
        if self.width and spec.num_obs > self.width**2:
            sizes.append(spec.num_obs // self.width**2)
        self.tables = nn.ModuleList(_table(size, config.embed_dim) for size in sizes)

    def corners(self, num_windows: int, device: torch.device) -> Tensor:
        """Row and column of the grid that the room of each window begins at, `[2, B, 1]`."""
        if self.training and self.slack:
            return torch.randint(self.slack + 1, (2, num_windows, 1), device=device)
        return torch.full((2, num_windows, 1), self.slack // 2, device=device)

    def forward(self, obs: Tensor, corners: Tensor) -> Tensor:
        """`[B, T] -> [B, T, D]`, with each window's room at its place in `corners`."""
        if not self.width:
            return self.tables[0](obs)
        cell = obs % self.width**2
        row, column = corners[0] + cell // self.width, corners[1] + cell % self.width
        embedded = self.tables[0](row) + self.tables[1](column)
        return embedded if len(self.tables) == 2 else embedded + self.tables[2](obs // self.width**2)


class PointEmbedding(nn.Module):
    """A point set's vector: what a layer makes of each point, its maximum and mean over the points, and the flags, in a
    second layer. The order of the points does not matter."""

    def __init__(self, config: ModelConfig, spec: EnvSpec) -> None:
        super().__init__()
        self.spec = spec
        self.of_point = nn.Linear(2 * spec.points[1], config.embed_dim)
        self.of_set = nn.Linear(2 * config.embed_dim + spec.points[1] + spec.num_actions, config.embed_dim)
        nn.init.normal_(self.of_set.weight, std=_STD)

    def corners(self, num_windows: int, device: torch.device) -> Tensor:
        """There is no room to place: see `ObsEmbedding`."""
        return torch.empty(0, device=device)

    def forward(self, obs: Tensor, corners: Tensor) -> Tensor:
        """`[B, T, K] -> [B, T, D]`."""
        features, present = point_features(self.spec, obs)
        pooled = pool(F.relu(self.of_point(features.to(self.of_point.weight.dtype))), present)
        return self.of_set(torch.cat([pooled, point_flags(self.spec, obs).to(pooled.dtype)], dim=-1))


class Sinusoids(nn.Module):
    """Sinusoidal position code (Vaswani et al., 2017): channels 2 i and 2 i + 1 of position p are the sine and cosine
    of p * 10000 ** (-2 i / D), scaled to the size that the other embeddings begin with."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, position: Tensor) -> Tensor:
        """`[T] -> [T, D]`."""
        frequency = 10000.0 ** (-torch.arange(0, self.width, 2, device=position.device) / self.width)
        angle = position[:, None] * frequency
        waves = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, : self.width]
        return _STD * 2**0.5 * waves


class Trunk(nn.Module):
    """Steps in, what is known at each of them out."""

    def __init__(self, config: ModelConfig, spec: EnvSpec, recompute: bool = False) -> None:
        """`recompute`: activation checkpointing while training."""
        super().__init__()
        self.config, self.spec = config, spec
        width = config.embed_dim
        self.tokens_per_step = 1 if config.tokens == "transition" else NUM_STREAMS
        embedding = PointEmbedding if spec.points[0] else ObsEmbedding
        self.obs = embedding(config, spec)
        self.prev_obs = embedding(config, spec) if config.tokens == "transition" else None
        self.prev_action = _table(spec.num_actions + 1, width)
        self.prev_reward = _table(spec.num_rewards + 1, width)
        self.env_time = _table(spec.max_episode_steps, width) if config.add_env_time else None
        self.position: nn.Module | None = None
        if config.position == "learned":
            self.position = _table(config.context_len, width)
        elif config.position == "sinusoidal":
            self.position = Sinusoids(width)
        self.dropout = nn.Dropout(config.embedding_dropout)
        self.transformer = (CrossTransformer if config.tokens == "cross" else Transformer)(config, recompute)
        self.induction = Induction(config) if config.induction else None

    def forward(self, context: Context, cache: ContextCache | None = None) -> Tensor:
        """What comes of each observation, `[B, T, D]`. With a cache, the T steps follow those in it. Raises
        `RuntimeError` for a cache in training mode, where two calls do not draw the same places of a room."""
        if cache and self.training:
            raise RuntimeError("a cache is for a model in eval mode")
        tokens = self._tokens(context, cache)  # [B, T, N, D]
        hidden = self.transformer(tokens.flatten(1, 2), cache.tokens if cache else None)
        if self.config.tokens == "interleaved":
            hidden = hidden[:, self.tokens_per_step - 1 :: self.tokens_per_step]
        return hidden

    @property
    def device(self) -> torch.device:
        return self.prev_action.weight.device

    def new_cache(self, num_streams: int) -> ContextCache:
        """An empty cache for a whole context."""
        config, like = self.config, self.prev_action.weight
        steps, heads, head_dim = config.context_len, config.num_heads, config.embed_dim // config.num_heads
        tokens = KVCache(config.num_layers, num_streams, heads, steps * self.tokens_per_step, head_dim, like)
        return ContextCache(tokens, VisitCache(num_streams, heads, steps, head_dim, like) if self.induction else None)

    def _tokens(self, context: Context, cache: ContextCache | None) -> Tensor:
        """Tokens `[B, T, N, D]` of the steps; what induction finds is in the last of each."""
        corners = self.obs.corners(len(context.obs), context.obs.device)
        obs, action = self.obs(context.obs, corners), self.prev_action(context.prev_action)
        reward = self.prev_reward(context.prev_reward)
        first = cache.tokens.length // self.tokens_per_step if cache else 0
        parts = list(self._placed(obs, action, reward, context, first))
        if self.prev_obs is not None:
            parts = [self.prev_obs(context.prev_obs, corners) + parts[0] + parts[1] + parts[2]]
        tokens = self.dropout(torch.stack(parts, dim=2))
        if self.induction is None:
            return tokens
        visited = context.prev_obs.masked_fill(context.prev_action == self.spec.num_actions, NO_VISIT)
        visits = cache.visits if cache else None
        found = self.induction(tokens[:, :, -1], action + reward + obs, visited, context.obs, visits)
        return tokens + F.pad(found[:, :, None], (0, 0, self.tokens_per_step - 1, 0))

    def _placed(
        self, obs: Tensor, action: Tensor, reward: Tensor, context: Context, first: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Action, reward and obs `[B, T, D]` of steps `first, first + 1, ...` of the context, with their position and
        time."""
        if self.position is not None:
            steps = torch.arange(first, first + obs.shape[1], device=obs.device)
            obs, action, reward = (token + self.position(steps) for token in (obs, action, reward))
        if self.env_time is not None:
            now = self.env_time(context.timestep)
            obs, reward = obs + now, reward + now
            action = action + self.env_time(context.prev_timestep)
        return action, reward, obs


class GPT(Trunk):
    """A trunk that says what to do next."""

    def __init__(self, config: ModelConfig, spec: EnvSpec, recompute: bool = False) -> None:
        super().__init__(config, spec, recompute)
        self.policy_head = nn.Linear(config.embed_dim, spec.num_actions)

    def forward(self, context: Context, cache: ContextCache | None = None) -> Tensor:
        """Action logits `[B, T, A]`, of what a trunk makes of the context."""
        return self.policy_head(super().forward(context, cache))


def _table(size: int, width: int) -> nn.Embedding:
    table = nn.Embedding(size, width)
    nn.init.normal_(table.weight, std=_STD)
    return table
