"""What networks read of observations that are point sets (`EnvSpec.points`): N points of n coordinates, K numbers."""

import torch
from torch import Tensor

from icrl.contracts import EnvSpec


def point_features(spec: EnvSpec, obs: Tensor) -> tuple[Tensor, Tensor]:
    """Of observations `[..., K]`: features `[..., N, 2 * n]` float32, and where there are points, `[..., N, 1]` bool.

    A coordinate x is read as x / m and as log(1 + x) / log(1 + m), m the largest of the position: the game is the same
    at any scale, and the logarithm tells small coordinates apart where others have grown. 0 where there is no point."""
    rows, dimension = spec.points
    numbers = obs[..., : rows * dimension].unflatten(-1, (rows, dimension))
    present = numbers[..., :1] > 0
    coordinates = (numbers - 1).clamp(min=0).float()
    largest = coordinates.amax((-2, -1), keepdim=True).clamp(min=1)
    return torch.cat([coordinates / largest, coordinates.log1p() / largest.log1p()], dim=-1), present


def point_flags(spec: EnvSpec, obs: Tensor) -> Tensor:
    """What else observations `[..., K]` tell, `[..., n + num_actions]` float32, 0 or 1."""
    rows, dimension = spec.points
    return obs[..., rows * dimension :].float()


def pool(of_point: Tensor, present: Tensor) -> Tensor:
    """Maximum and mean over the points there are of what is >= 0, `[..., N, H] -> [..., 2 * H]`."""
    there = of_point * present
    return torch.cat([there.amax(-2), there.sum(-2) / present.sum(-2).clamp(min=1)], dim=-1)
