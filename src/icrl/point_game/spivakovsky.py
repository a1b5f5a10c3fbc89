"""Host of the polyhedra game after Spivakovsky ("A solution to Hironaka's polyhedra game", 1983), adapted to the game
in which the agent's coordinate becomes a plain sum.

The subset is named in rounds, the first on the position, each later one on points V in the coordinates that are not
named yet. With x the points less the minimum of each coordinate, and |x_S| the sum of the coordinates S of x:

    l = min |x|,    S = the coordinates that are positive in a point with |x| = l, which are named,
    next V = {x_I / (l - |x_S|) : |x_S| < l},    from the second round on together with {v_I / (1 - |v_S|) : |v_S| < 1},

where I are the coordinates that are left. A round in which one point of V is below all others is the last: it names the
fewest coordinates, largest first, whose sum in that point is at least 1. So is a round that leaves no point.

Why the host wins: an answer in S of the first round lowers l. After any other l is no larger, S no smaller, and while
both stay V moves as in a game where the agent's coordinate becomes a sum less 1, and where the host has won when a sum
in V is at most 1: then l has fallen, or S grown. In that game the sum over what is named must be at least 1 in all
points of V, which is why V itself is projected too; the same argument holds for it, with fewer coordinates; and a point
below all others comes down by each answer.

B games, N rows, n coordinates. Sums are compared in float64, where two that differ by less than one part in 10^8 count
as equal: exact for small numbers.
"""

import torch
from torch import Tensor

from icrl.point_game.rules import PADDING, action_of, available, canonical, is_over, reduce, reposition, trim

_EQUAL = 1e-8


def spivakovsky(points: Tensor, noise: Tensor) -> Tensor:
    """The numbers of subsets `[B]` for `points` `[B, N, n]`: a function of the set of points. `noise` plays no part."""
    rows = reposition(points).double()
    rows[is_over(points)] = PADDING
    level, named = _lowest(rows)
    rows = _projected(rows, named, level)
    while available(rows := trim(canonical(reduce(rows)))).any():
        shifted = reposition(rows)
        level, support = _lowest(shifted)
        single = (level <= _EQUAL) & available(rows).any(1)
        support = torch.where(single[:, None], _fewest(_least(rows)), support)
        named |= support
        rows = torch.cat([_projected(shifted, support, level), _projected(rows, support, torch.ones_like(level))], 1)
        rows[single] = PADDING
    named[:, :2] |= (named.sum(1) < 2)[:, None]  # a game that is over
    return action_of(named)


def _lowest(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest sum `[B]` of a point, and the coordinates `[B, n]` bool that are positive in a point that has it;
    no number, and none, where there is no point."""
    total = rows.sum(-1).masked_fill(~available(rows), torch.inf)
    level = total.amin(1)
    bound = (level * (1 + _EQUAL))[:, None]
    positive = rows > _EQUAL * level.clamp(max=1)[:, None, None]
    return level, (positive & ((total <= bound) & available(rows))[..., None]).any(1)


def _projected(rows: Tensor, away: Tensor, level: Tensor) -> Tensor:
    """x_I / (level - |x_S|) of the points with |x_S| < `level` `[B]`, S the coordinates `away` `[B, n]`, which become
    0; padding in place of the others, and where nothing but S is left."""
    inside = (rows * away[:, None]).sum(-1)
    kept = available(rows) & (inside < (level * (1 - _EQUAL))[:, None])
    distance = torch.where(kept, level[:, None] - inside, 1.0)
    return torch.where(kept[..., None], rows.masked_fill(away[:, None], 0.0) / distance[..., None], PADDING)


def _least(rows: Tensor) -> Tensor:
    """The minimum of each coordinate, `[B, n]`; padding where there is no point."""
    return torch.where(available(rows)[..., None], rows, torch.inf).amin(1)


def _fewest(point: Tensor) -> Tensor:
    """The largest coordinates of `[B, n]`, of equal ones the first, as few as have a sum of at least 1, `[B, n]`
    bool."""
    ordered, order = point.round(decimals=9).sort(dim=1, descending=True, stable=True)
    before = ordered.cumsum(1) - ordered
    return torch.zeros_like(point, dtype=torch.bool).scatter(1, order, before < 1 - _EQUAL)
