"""Host of the polyhedra game after Spivakovsky ("A solution to Hironaka's polyhedra game", 1983), adapted to the game
in which the agent's coordinate becomes a plain sum.

The host builds its subset in rounds. The first round reads the position. Each later round reads points V in the
coordinates that are not named yet. With x the points less the minimum of each coordinate, and |x_S| the sum of the
coordinates S of x, a round names S:

    l = min |x|,    S = the coordinates that are positive in a point with |x| = l,
    next V = {x_I / (l - |x_S|) : |x_S| < l},    from the second round on together with {v_I / (1 - |v_S|) : |v_S| < 1},

where I are the coordinates that are left. A round in which one point of V is below all others is the last: it names the
fewest coordinates, largest first, whose sum in that point is at least 1. A round that leaves no point is the last too.
docs/point_game.md says why the host wins against every agent. B games, N rows, n coordinates. Two sums, in float64, are
equal if they differ by less than one part in 10^8, so the result is exact for small numbers.
"""

import torch
from torch import Tensor

from icrl.point_game.rules import PADDING, action_of, available, canonical, is_over, reduce, reposition, trim

_EQUAL = 1e-8


def spivakovsky(points: Tensor, noise: Tensor) -> Tensor:
    """Actions `[B]` for `points` `[B, N, n]`: a function of the set of points, without use of `noise`."""
    rows = reposition(points).double()
    rows[is_over(points)] = PADDING
    level, named = _lowest(rows)
    rows = _projected(rows, named, level)
    while available(rows := trim(canonical(reduce(rows)))).any():
        shifted = reposition(rows)
        level, support = _lowest(shifted)
        single = (level <= _EQUAL) & available(rows).any(1)
        least = torch.where(available(rows)[..., None], rows, torch.inf).amin(1)  # [B, n]
        support = torch.where(single[:, None], _fewest(least), support)
        named |= support
        rows = torch.cat([_projected(shifted, support, level), _projected(rows, support, torch.ones_like(level))], 1)
        rows[single] = PADDING
    named[:, :2] |= (named.sum(1) < 2)[:, None]  # a game that is over
    return action_of(named)


def _lowest(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Smallest sum `[B]` of a point, and the coordinates `[B, n]` bool that are positive in a point with that sum;
    infinity and no coordinate in a game without points."""
    total = rows.sum(-1).masked_fill(~available(rows), torch.inf)
    level = total.amin(1)
    bound = (level * (1 + _EQUAL))[:, None]
    positive = rows > _EQUAL * level.clamp(max=1)[:, None, None]
    return level, (positive & ((total <= bound) & available(rows))[..., None]).any(1)


def _projected(rows: Tensor, away: Tensor, level: Tensor) -> Tensor:
    """x_I / (level - |x_S|) for the points with |x_S| < `level` `[B]`; the coordinates S = `away` `[B, n]` become 0.
    All other points become padding."""
    inside = (rows * away[:, None]).sum(-1)
    kept = available(rows) & (inside < (level * (1 - _EQUAL))[:, None])
    distance = torch.where(kept, level[:, None] - inside, 1.0)
    return torch.where(kept[..., None], rows.masked_fill(away[:, None], 0.0) / distance[..., None], PADDING)


def _fewest(point: Tensor) -> Tensor:
    """Fewest coordinates of each point `[B, n]`, largest first and ties in order, whose sum is at least 1: `[B, n]`
    bool."""
    ordered, order = point.round(decimals=9).sort(dim=1, descending=True, stable=True)
    before = ordered.cumsum(1) - ordered
    return torch.zeros_like(point, dtype=torch.bool).scatter(1, order, before < 1 - _EQUAL)
