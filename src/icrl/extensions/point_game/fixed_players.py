"""Fixed players of the polyhedra game, on batches of games. B games, N rows for points, n coordinates, A actions.

A host maps positions `[B, N, n]` and noise `[B]` to actions `[B]`, which number subsets. An agent maps positions, the
host's subsets `[B, n]` bool and noise to coordinates `[B]`. Noise is uniform in [0, 1): one number a game, and all the
randomness of a player at this step. A host names some subset even where a game is over.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from icrl.extensions.point_game.rules import (
    PADDING,
    available,
    canonical,
    codes_of,
    is_over,
    reduce,
    reposition,
    subsets,
    trim,
)

Host = Callable[[Tensor, Tensor], Tensor]
Agent = Callable[[Tensor, Tensor, Tensor], Tensor]
_EQUAL = 1e-8


def choose(allowed: Tensor, noise: Tensor) -> Tensor:
    """Index of a true entry in each row of `allowed` `[B, K]`, all equally likely, `[B]`. Each row must have one."""
    count = allowed.sum(1)
    rank = (noise * count).long()  # noise is at most 1 - 2**-24, so that the product never rounds up to `count`
    return (allowed.cumsum(1) <= rank[:, None]).sum(1)


def random_pair(points: Tensor, noise: Tensor) -> Tensor:
    """Two coordinates, all pairs equally likely."""
    pairs = (subsets(points.shape[-1], points.device).sum(1) == 2).nonzero()[:, 0]
    return pairs[(noise * len(pairs)).long()]


def random_subset(points: Tensor, noise: Tensor) -> Tensor:
    """Any subset of at least two coordinates, all equally likely."""
    return (noise * len(subsets(points.shape[-1], points.device))).long()


def zeillinger(points: Tensor, noise: Tensor, lexicographic: bool = False) -> Tensor:
    """Zeillinger, "A short solution to Hironaka's polyhedra game" (2006). For each pair of points take the difference
    d, its length L = max d - min d and the number S of its coordinates that equal max d or min d. The pair with the
    smallest (L, S), the first in the order of rows, gives {argmin d, argmax d}, each the first of its kind. The host
    wins in any dimension: each move lowers the number of points or the smallest (L, S).

    `lexicographic` takes the lexicographically smallest subset of all these pairs, which no order of rows changes."""
    dimension, columns = points.shape[-1], trim(points).permute(2, 1, 0).contiguous()  # [n, N, B]
    first, second = torch.triu_indices(columns.shape[1], columns.shape[1], 1, device=points.device)
    best = (columns[0, first] >= 0) & (columns[0, second] >= 0)  # [P, B] for P pairs
    difference = columns[:, first] - columns[:, second]  # [n, P, B]
    least, most = -(-difference).amax(0), difference.amax(0)  # `amin` is slow
    lowest, highest = difference == least, difference == most
    for key in (most - least, lowest.long().sum(0) + highest.long().sum(0)):
        smallest = -(-key).where(best, -key.max()).amax(0)
        best = best & (key == smallest)
    low, high = _first(lowest), _first(highest)
    if lexicographic:
        order = torch.minimum(low, high) * dimension + torch.maximum(low, high)
        number = -(-order).where(best, 1 - dimension**2).amax(0)  # without a pair twice the last coordinate
        low, high = number // dimension, number % dimension
    else:
        pair = _first(best)[None]
        low, high = low.gather(0, pair)[0], high.gather(0, pair)[0]
    action = (1 << low) + (1 << high) - torch.maximum(low, high) - 2  # see `rules.subsets`
    return action.masked_fill(low == high, 0)  # {0, 1}


def _first(mask: Tensor) -> Tensor:
    """First true index along the first dimension of `mask`, or 0 if there is none. (`argmax` is slow.)"""
    rank = torch.arange(len(mask), 0, -1, device=mask.device).view(-1, *[1] * (mask.ndim - 1))
    return (len(mask) - (mask * rank).amax(0)) % len(mask)


def smallest_hitting(points: Tensor) -> Tensor:
    """Mask of the smallest hitting sets, `[B, A]` bool: after `reposition`, every point has a positive coordinate in
    such a set. (A set of one never hits them all then.) A game that is over needs none, so all pairs are."""
    table = subsets(points.shape[-1], points.device)
    missed = available(points)[..., None] & ((reposition(points) > 0).float() @ table.T.float() == 0)  # [B, N, A]
    hitting = ~missed.any(1) | is_over(points)[:, None]
    size = table.sum(1).where(hitting, points.shape[-1])
    return hitting & (size == size.amin(1, keepdim=True))


def spivakovsky(points: Tensor, noise: Tensor) -> Tensor:
    """Spivakovsky, "A solution to Hironaka's polyhedra game" (1983), adapted to the game in which the agent's
    coordinate becomes a plain sum. It wins against every agent. It builds its subset in rounds. The first
    reads the position, each later one reads points V in the coordinates that are not named yet. With x the points less
    the minimum of each coordinate, and |x_S| the sum of the coordinates S of x, a round names S:

        l = min |x|,    S = the coordinates that are positive in a point with |x| = l,
        next V = {x_I / (l - |x_S|) : |x_S| < l},    from the second round on also {v_I / (1 - |v_S|) : |v_S| < 1},

    where I are the coordinates left. A round without points is the last, and so is one in which a point of V is below
    all others: it names the fewest coordinates, largest first, whose sum in that point is at least 1. Two sums, in
    float64, are equal if they differ by less than one part in 10^8, so the result is exact for small numbers."""
    rows = reposition(points).double()
    rows[is_over(points)] = PADDING
    level, named = _lowest(rows)
    rows = _projected(rows, named, level)
    while available(rows := trim(canonical(reduce(rows)))).any():
        shifted = reposition(rows)
        level, support = _lowest(shifted)
        single = (level <= _EQUAL) & available(rows).any(1)
        least = torch.where(available(rows)[..., None], rows, torch.inf).amin(1)  # [B, n]
        ordered, order = least.round(decimals=9).sort(dim=1, descending=True, stable=True)
        fewest = torch.zeros_like(support).scatter(1, order, ordered.cumsum(1) - ordered < 1 - _EQUAL)
        support = torch.where(single[:, None], fewest, support)
        named |= support
        rows = torch.cat([_projected(shifted, support, level), _projected(rows, support, torch.ones_like(level))], 1)
        rows[single] = PADDING
    named[:, :2] |= (named.sum(1) < 2)[:, None]  # a game that is over
    return codes_of(named) - (named * torch.arange(named.shape[1], device=named.device)).amax(1) - 2


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


def random_agent(points: Tensor, coords: Tensor, noise: Tensor) -> Tensor:
    """A coordinate of the subset, all equally likely."""
    return choose(coords, noise)


def first_agent(points: Tensor, coords: Tensor, noise: Tensor) -> Tensor:
    """The lowest coordinate of the subset."""
    return coords.byte().argmax(1)


HOSTS: dict[str, Host] = {
    **{"random_pair": random_pair, "random_subset": random_subset},
    "all_coordinates": lambda points, noise: torch.full_like(noise, len(subsets(points.shape[-1])) - 1).long(),
    **{"zeillinger": zeillinger, "zeillinger_lexicographic": partial(zeillinger, lexicographic=True)},
    "spivakovsky": spivakovsky,
    # Weak forms of `spivakovsky`, from the reference game: a random smallest hitting set, or the one of lowest number.
    # They do not read how large the coordinates are, and do not win against every agent.
    "weak_spivakovsky": lambda points, noise: choose(smallest_hitting(points), noise),
    "weak_spivakovsky_first": lambda points, noise: smallest_hitting(points).byte().argmax(1),
}
AGENTS: dict[str, Agent] = {
    "random": random_agent,
    "first": first_agent,
    "last": lambda points, coords, noise: coords.shape[1] - 1 - coords.flip(1).byte().argmax(1),
}
