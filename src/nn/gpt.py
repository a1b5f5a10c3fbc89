"""The in-context model: environment steps in, action logits out.

B streams, T environment steps in context, D width, A actions. A step becomes one token or three:

    transition    previous obs + previous action + previous reward + obs_t    (one token, embeddings added)
    interleaved   previous action, previous reward, obs_t                     (three tokens)

The interleaved form is the sequence reward, state, action, reward, state, action, ... of a Decision Transformer without
return-to-go; an action is predicted where the observation it answers has been read.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from src.contracts import EnvSpec
from src.nn.kv_cache import KVCache
from src.nn.transformer import Transformer
from src.schema import ModelConfig


class Context(NamedTuple):
    """What the model reads at each step, int64 `[B, T]` each. The first step of a context has no previous transition:
    its previous action and reward are the numbers after the last valid ones, its previous obs and timestep its own."""

    prev_obs: Tensor
    prev_action: Tensor
    prev_reward: Tensor
    prev_timestep: Tensor
    obs: Tensor
    timestep: Tensor


def context_of(spec: EnvSpec, obs: Tensor, action: Tensor, reward: Tensor, timestep: Tensor) -> Context:
    """The context of a window of transitions, integers `[B, T]` each; the last action and reward are not in it."""
    obs, action, reward, timestep = (column.long() for column in (obs, action, reward, timestep))

    def shifted(column: Tensor, first: Tensor) -> Tensor:
        return torch.cat([first, column[:, :-1]], dim=1)

    none = torch.ones_like(obs[:, :1])
    return Context(
        prev_obs=shifted(obs, obs[:, :1]),
        prev_action=shifted(action, none * spec.num_actions),
        prev_reward=shifted(reward, none * spec.num_rewards),
        prev_timestep=shifted(timestep, timestep[:, :1]),
        obs=obs,
        timestep=timestep,
    )


class ObsEmbedding(nn.Module):
    """An observation's own vector, or the sum of its row's, its column's and, where there are several layers, its
    layer's."""

    def __init__(self, config: ModelConfig, spec: EnvSpec) -> None:
        super().__init__()
        self.width = spec.width if config.obs_encoding == "coordinates" else 0
        sizes = [config.max_size, config.max_size] if self.width else [spec.num_obs]
        if self.width and spec.num_obs > self.width**2:
            sizes.append(spec.num_obs // self.width**2)
        self.tables = nn.ModuleList(_table(size, config.embed_dim) for size in sizes)

    def forward(self, obs: Tensor) -> Tensor:
        if not self.width:
            return self.tables[0](obs)
        cell = obs % self.width**2
        embedded = self.tables[0](cell // self.width) + self.tables[1](cell % self.width)
        return embedded if len(self.tables) == 2 else embedded + self.tables[2](obs // self.width**2)


class GPT(nn.Module):
    def __init__(self, config: ModelConfig, spec: EnvSpec, recompute: bool = False) -> None:
        """`recompute`: activation checkpointing while training."""
        super().__init__()
        self.config, self.spec = config, spec
        width = config.embed_dim
        self.tokens_per_step = 1 if config.tokens == "transition" else 3
        self.obs = ObsEmbedding(config, spec)
        self.prev_obs = ObsEmbedding(config, spec) if config.tokens == "transition" else None
        self.prev_action = _table(spec.num_actions + 1, width)
        self.prev_reward = _table(spec.num_rewards + 1, width)
        self.env_time = _table(spec.max_episode_steps, width) if config.add_env_time else None
        self.position = _table(config.context_len, width) if config.position == "learned" else None
        self.dropout = nn.Dropout(config.embedding_dropout)
        self.transformer = Transformer(config, recompute)
        self.policy_head = nn.Linear(width, spec.num_actions)

    def forward(self, context: Context, cache: KVCache | None = None) -> Tensor:
        """Action logits `[B, T, A]`. With a cache, the T steps follow those in it."""
        tokens = self.dropout(self._embed(context, cache.length // self.tokens_per_step if cache else 0))
        hidden = self.transformer(tokens, cache)
        return self.policy_head(hidden[:, self.tokens_per_step - 1 :: self.tokens_per_step])

    def new_cache(self, num_streams: int) -> KVCache:
        """An empty cache for a whole context."""
        config = self.config
        capacity = config.context_len * self.tokens_per_step
        head_dim = config.embed_dim // config.num_heads
        like = self.policy_head.weight
        return KVCache(config.num_layers, num_streams, config.num_heads, capacity, head_dim, like)

    def _embed(self, context: Context, first_step: int) -> Tensor:
        """Tokens `[B, T * tokens_per_step, D]` of steps `first_step, first_step + 1, ...` of the context."""
        obs, action = self.obs(context.obs), self.prev_action(context.prev_action)
        reward = self.prev_reward(context.prev_reward)
        if self.position is not None:
            steps = torch.arange(first_step, first_step + obs.shape[1], device=obs.device)
            obs, action, reward = (token + self.position(steps) for token in (obs, action, reward))
        if self.env_time is not None:
            now = self.env_time(context.timestep)
            obs, reward = obs + now, reward + now
            action = action + self.env_time(context.prev_timestep)
        if self.prev_obs is not None:
            return self.prev_obs(context.prev_obs) + action + reward + obs
        return torch.stack([action, reward, obs], dim=2).flatten(1, 2)


def _table(size: int, width: int) -> nn.Embedding:
    table = nn.Embedding(size, width)
    nn.init.normal_(table.weight, std=0.02)
    return table
