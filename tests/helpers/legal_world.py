"""A world with legal actions: one point of one coordinate; an observation is the point, a flag and legal actions."""

import torch
from hypothesis import strategies as st
from torch import Tensor

from icrl.contracts import Batch
from icrl.nn.gpt import Context, Window, context_of
from icrl.spaces import EnvSpec, discrete_spec

LEGAL = discrete_spec(4, 3, (0.0, 1.0), 0, max_episode_steps=5, points=(1, 1))


class Fixed:
    """A model that returns given logits and keeps its input."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits.clone().requires_grad_()

    def __call__(self, context: Context) -> Tensor:
        self.shown = context
        return self.logits


def context_in(batch: Batch, spec: EnvSpec = LEGAL) -> Context:
    return context_of(Window.of(batch))


MASKS = [[True, True, False], [False, True, True], [True, False, True], [True, True, True], [False, True, False]]
masks = st.lists(st.sampled_from(MASKS), min_size=4, max_size=4)


def batch_of(legal: list[list[bool]], seed: int = 0) -> Batch:
    """One window in which random legal actions were taken, and others would have been best."""
    generator = torch.Generator().manual_seed(seed)
    flags = torch.tensor(legal)[None]
    obs = torch.cat([torch.randint(4, (1, len(legal), 2), generator=generator), flags], dim=-1)
    action, best = ((torch.rand(flags.shape, generator=generator) * flags).argmax(-1) for _ in range(2))
    zero = torch.zeros_like(action)
    return Batch(obs, action, zero, obs, zero, zero, zero, best, zero + 1.0, zero.float())


def restricted(logits: Tensor, batch: Batch, t: int) -> tuple[Tensor, Tensor]:
    """Logits at step `t` of a model that knows the legal actions alone, and the index among them of the one taken."""
    legal = batch.obs[0, t, -3:].bool()
    return logits[0, t][legal], legal[: int(batch.action[0, t])].sum()
