"""Actions as random vectors (Headless-AD; Sinii et al., "In-context reinforcement learning for variable action spaces",
2024, arXiv 2312.13327).

B windows or streams, T steps, A actions, D width.

Each window in training, and each stream of a model that acts, has A orthonormal vectors e_a of D numbers of its own,
uniformly distributed; those of a stream follow from its noise. Contexts that are read apart from a stream have vectors
of their place among them. The model reads vectors in place of actions, and emits a vector v_t in place of logits:

    embedding of the previous action = W e_{a_{t-1}} + w,    logit of action a at step t = v_t . e_a

Cross-entropy over the set is the contrastive loss of the paper. No parameter belongs to an action, so the model acts on
any set of at most D actions.

*Differences from the paper:* no prompt that lists the vectors, because their sum in each token made learning slower; no
temperature, because the layer that emits v_t can scale it; actions are drawn from the softmax of the logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from gymnasium.spaces import Discrete
from torch import Tensor, nn

from icrl.config.options import refuse
from icrl.nn.cache import Cache, TokenCache
from icrl.nn.encoders import OrNone
from icrl.nn.gpt import GPT, Context
from icrl.nn.heads import Categorical
from icrl.randomness import normal, several, stream_seeds, uniform
from icrl.spaces import EnvSpec

if TYPE_CHECKING:
    from icrl.nn.gpt import GPTConfig

NAME = "action_vectors"
_PURPOSE = 12  # of the random numbers of streams


class StreamVectors(TokenCache):
    """Vectors of streams, `[1, B, A, D]`."""

    def begin(self, noise: Tensor) -> None:
        self.columns[0][0] = vectors_of(noise, *self.columns[0].shape[2:])


class VectorGPT(GPT):
    """Model whose last cache holds the vectors of the streams."""

    def forward(self, context: Context, cache: Sequence[TokenCache] = ()) -> Tensor:
        """Logits `[B, T, A]`."""
        dtype = self.policy_head.weight.dtype
        vectors = (cache[-1].columns[0][0] if cache else self._vectors(len(context.obs))).to(dtype)  # [B, A, D]
        previous = vectors[torch.arange(len(vectors), device=vectors.device)[:, None], context.prev_action]
        return super().forward(context._replace(prev_action=previous), cache) @ vectors.mT

    def new_cache(self, num_streams: int) -> Cache:
        return Cache([*super().new_cache(num_streams), StreamVectors(self._of_places(num_streams)[None])])

    def _vectors(self, number: int) -> Tensor:
        """Vectors `[B, A, D]` of windows: new ones in training, else those of their places."""
        return self._drawn(number) if self.training else self._of_places(number)

    def _drawn(self, number: int) -> Tensor:
        return orthonormal(torch.randn(number, self.config.embed_dim, self.spec.num_actions, device=self.device))

    def _of_places(self, number: int) -> Tensor:
        noise = uniform(stream_seeds(0, number, _PURPOSE), 0).to(self.device)
        return vectors_of(noise, self.spec.num_actions, self.config.embed_dim)


class ActionVectors(Categorical):
    """Head whose parameters are the vector that a linear layer emits, of which `VectorGPT` makes logits."""

    model = VectorGPT

    def __init__(self, config: GPTConfig, spec: EnvSpec) -> None:
        space, width = spec.action_space, config.embed_dim
        refuse(not isinstance(space, Discrete), f"model.head={NAME} needs Discrete actions, and these are in {space}")
        most = f"model.embed_dim={width} with model.head={NAME}: must be at least the number of actions"
        refuse(width < spec.num_actions, f"{most}, {spec.num_actions}")
        super().__init__(width)

    def encoder(self, width: int) -> nn.Module:
        return OrNone(nn.Linear(width, width), width)


def vectors_of(noise: Tensor, num_actions: int, width: int) -> Tensor:
    """Vectors `[B, A, D]` of streams with this `noise` `[B]` in their first step."""
    return orthonormal(normal(several(noise, width * num_actions, _PURPOSE)).view(-1, width, num_actions))


def orthonormal(columns: Tensor) -> Tensor:
    """Orthonormal rows `[..., A, D]` that span `columns` `[..., D, A]`; uniformly distributed if these are normal."""
    q, r = torch.linalg.qr(columns)
    return (q * r.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]).mT
