"""Point game with any options, and random play in it."""

from typing import Any

import torch
from scalar_points import Points
from torch import Tensor

from icrl.contracts import Step
from icrl.extensions.point_game.rules import PADDING
from icrl.extensions.point_game.world import GamesState, PointFamily, PointGameConfig
from icrl.randomness import draw_possible, uniform

_DEFAULTS: dict[str, Any] = {
    "name": "point_game",
    "variant": "point_game",
    "role": "host",
    "opponents": ["table_0"],
    "max_episode_steps": 6,
}


def tensor_of(games: list[Points], dimension: int) -> Tensor:
    """Positions `[B, N, n]` of games in plain Python."""
    gone = (PADDING,) * dimension
    return torch.tensor([[gone if point is None else point for point in points] for points in games])


def point_config(**options: Any) -> PointGameConfig:
    return PointGameConfig(**_DEFAULTS | options)


def point_game(**options: Any) -> PointFamily:
    return PointFamily(point_config(**options))


def legal_in(env: PointFamily, obs: Tensor) -> Tensor:
    """Legal actions `[..., A]` bool in observations `[..., K]`."""
    legal = env.spec.legal(obs)
    assert legal is not None
    return legal


def lived(env: PointFamily, tasks: Tensor, seeds: Tensor, num_steps: int) -> list[tuple[GamesState, Tensor, Step]]:
    """Random legal moves: a row (state, last action, step) for each time."""
    state, step = env.reset(tasks, seeds)
    rows = [(state, torch.zeros_like(seeds), step)]
    for time in range(num_steps):
        legal = legal_in(env, step.obs)
        action = draw_possible(legal / legal.sum(1, keepdim=True), uniform(seeds, time + 1000))
        state, step = env.step(state, action)
        rows.append((state, action, step))
    return rows
