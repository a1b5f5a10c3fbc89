"""Guided policy: a prior's logits plus the scaled advantages of a critic."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from icrl.nn.critic import ValueNetwork
from icrl.nn.gpt import GPT, Context
from icrl.nn.kv_cache import ContextCache


class GuidedCache(NamedTuple):
    """Caches of the policy and of the critic."""

    policy: ContextCache | None
    critic: tuple[ContextCache, ...]

    def clear(self) -> None:
        """Forget every step."""
        for cache in self.contexts:
            cache.clear()

    def replace(self, streams: Tensor, other: "GuidedCache") -> None:
        """Copy the context of `other`, which has as many steps, into the rows `streams` `[n]`."""
        for cache, theirs in zip(self.contexts, other.contexts, strict=True):
            cache.replace(streams, theirs)

    @property
    def contexts(self) -> tuple[ContextCache, ...]:
        return self.critic if self.policy is None else (self.policy, *self.critic)


class Guided(nn.Module):
    """pi(a | context) ~ prior(a | context) exp(scale (min(Q1, Q2)(o, a) - V(o)))  (Snell et al., 2022), with the
    interface of a GPT. The prior is another model of the same context length, else the critic's own policy head, else
    uniform."""

    def __init__(self, prior: GPT | None, critic: ValueNetwork, scale: float) -> None:
        super().__init__()
        self.prior, self.critic, self.scale = prior, critic, scale
        self.config, self.spec = critic.config, critic.spec

    @property
    def device(self) -> torch.device:
        return self.critic.device

    def forward(self, context: Context, cache: GuidedCache | None = None) -> Tensor:
        """Action logits `[B, T, A]`. With a cache the T steps continue it."""
        values = self.critic(context, cache.critic if cache else ())
        logits = values.logits if self.prior is None else self.prior(context, cache.policy if cache else None)
        guidance = self.scale * values.advantage
        return guidance if logits is None else logits + guidance

    def new_cache(self, num_streams: int) -> GuidedCache:
        """An empty cache for a whole context."""
        policy = self.prior.new_cache(num_streams) if self.prior else None
        return GuidedCache(policy, self.critic.new_caches(num_streams))
