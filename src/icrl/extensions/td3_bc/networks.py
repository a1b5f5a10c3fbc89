"""Networks of TD3+BC: a deterministic actor and twin critics on one causal trunk, and slow copies of all of them.

B windows, T steps, D width, k numbers of an action, in units of half the distance between its bounds, from their
middle.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from icrl.config.options import replace
from icrl.extensions.value_sources.targets import WithTarget
from icrl.extensions.vectors.actions import SquashedGaussian
from icrl.nn.gpt import GPT, Context, GPTConfig, Trunk
from icrl.nn.networks import in_float32
from icrl.spaces import EnvSpec

NUM_CRITICS = 2
TARGET_UPDATE_RATE = 0.05  # step of the slow copies towards the networks, after each update


class Deterministic(SquashedGaussian):
    """The mode of the squashed Gaussian, at every temperature."""

    def sample(self, parameters: Tensor, noise: Tensor, temperature: float = 1.0) -> Tensor:
        return self.mode(parameters)


class Actor(GPT):
    """In-context policy whose actions are deterministic."""

    head: Deterministic

    def __init__(self, config: GPTConfig, spec: EnvSpec, recompute: bool = False) -> None:
        super().__init__(replace(config, head="gaussian"), spec, recompute)
        space: Any = spec.action_space
        self.head = Deterministic(space)

    def chosen(self, hidden: Tensor) -> Tensor:
        """Actions `[B, T, k]` for the outputs `[B, T, D]` of the trunk."""
        return self.head.in_units(self.head.mode(self.policy_head(hidden)))


class Judged(NamedTuple):
    """Outputs of the networks at each step, in float32 at least."""

    q: Tensor  # [2, B, T]: of both critics, of the given actions
    chosen: Tensor  # [B, T, k]: the actor's actions
    q_chosen: Tensor  # [B, T]: of the first critic, of these; its gradient reaches the actor alone


class Networks(nn.Module):
    """An actor, and critics that read the outputs of its trunk and an action."""

    def __init__(self, config: GPTConfig, spec: EnvSpec, recompute: bool = False) -> None:
        super().__init__()
        self.actor = Actor(config, spec, recompute)
        sizes, width = (config.embed_dim + self.actor.head.num_noise, config.ff_dim), config.ff_dim
        self.critics = nn.ModuleList(
            nn.Sequential(nn.Linear(*sizes), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))
            for _ in range(NUM_CRITICS)
        )

    def hidden(self, context: Context) -> Tensor:
        """Outputs `[B, T, D]` of the trunk."""
        return Trunk.forward(self.actor, context)

    def q(self, hidden: Tensor, action: Tensor) -> Tensor:
        """Q of both critics, `[2, B, T]`."""
        inputs = torch.cat([hidden, action.to(hidden.dtype)], dim=-1)
        return torch.stack([in_float32(critic(inputs))[..., 0] for critic in self.critics])

    def forward(self, context: Context, action: Tensor) -> Judged:
        """Q of `action` `[B, T, k]` in a context, and the actor's choice."""
        hidden = self.hidden(context)
        q, chosen = self.q(hidden, action), self.actor.chosen(hidden)
        self.critics.requires_grad_(False)
        q_chosen = self.q(hidden.detach(), chosen)[0]
        self.critics.requires_grad_(True)
        return Judged(q, chosen, q_chosen)


class ActorAndCritics(WithTarget):
    """The networks, and slow copies of them."""

    online: Networks
    target: Networks

    def __init__(self, config: GPTConfig, spec: EnvSpec, recompute: bool = False) -> None:
        super().__init__(Networks(config, spec, recompute), TARGET_UPDATE_RATE)
