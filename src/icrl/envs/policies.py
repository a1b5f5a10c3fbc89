"""Policies that learn nothing: random play and the planner. B streams, A actions."""

import torch
from gymnasium.spaces import Box, MultiDiscrete
from torch import Tensor

from icrl.config.options import refuse
from icrl.contracts import Step
from icrl.randomness import draw_possible, several
from icrl.spaces import EnvSpec


class Unlearned:
    """Base of policies that remember nothing."""

    def initial_carry(self, num_streams: int) -> tuple[()]:
        return ()


class Chance(Unlearned):
    """Uniformly random play."""

    def __init__(self, spec: EnvSpec) -> None:
        self._spec = spec

    def act(self, carry: tuple[()], step: Step, noise: Tensor) -> tuple[Tensor, tuple[()]]:
        return uniform_actions(self._spec, step.obs, noise), carry


class Planner(Unlearned):
    """The optimal action of the world, which knows the task."""

    def act(self, carry: tuple[()], step: Step, noise: Tensor) -> tuple[Tensor, tuple[()]]:
        return step.optimal_action, carry


def uniform_actions(spec: EnvSpec, obs: Tensor, noise: Tensor) -> Tensor:
    """Uniformly random actions of a world with `spec`, `[B, ...]`, among the legal ones for `obs`, by `noise` `[B]`."""
    space = spec.action_space
    if isinstance(space, MultiDiscrete):
        sizes = torch.from_numpy(space.nvec).to(noise.device)
        return (several(noise, len(sizes)) * sizes).long()
    if isinstance(space, Box):
        refuse(not space.is_bounded(), f"actions in {space} have no bounds, so none can be drawn: add bounds")
        low, high = (torch.from_numpy(bound).to(noise.device) for bound in (space.low, space.high))
        return low + (high - low) * several(noise, low.numel()).view(-1, *low.shape)
    legal = spec.legal(obs)
    if legal is None:
        legal = torch.ones(len(obs), spec.num_actions, device=obs.device)
    return draw_possible(legal / legal.sum(1, keepdim=True), noise)
