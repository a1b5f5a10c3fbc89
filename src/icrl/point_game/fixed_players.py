"""Fixed players of the polyhedra game, on batches of games.

A host maps positions `[B, N, n]` and noise `[B]` to actions `[B]`, which number subsets. An agent maps positions, the
host's subsets `[B, n]` bool and noise to coordinates `[B]`. Noise is uniform in [0, 1): one number a game, and all the
randomness of a player at this step. A host names some subset even where a game is over.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from icrl.point_game.rules import codes_of, reposition, subsets, trim
from icrl.point_game.spivakovsky import spivakovsky

Host = Callable[[Tensor, Tensor], Tensor]
Agent = Callable[[Tensor, Tensor, Tensor], Tensor]


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


def all_coordinates(points: Tensor, noise: Tensor) -> Tensor:
    """The subset of all coordinates."""
    return torch.full((len(points),), len(subsets(points.shape[-1], points.device)) - 1, device=points.device)


def zeillinger(points: Tensor, noise: Tensor) -> Tensor:
    """Zeillinger, "A short solution to Hironaka's polyhedra game" (2006). For each pair of points take the difference
    d, its length L = max d - min d and the number S of its coordinates that equal max d or min d. The pair with the
    smallest (L, S), the first in the order of rows, gives {argmin d, argmax d}, each the first of its kind. The host
    wins in any dimension: each move lowers the number of points or the smallest (L, S)."""
    best, low, high = _shortest_differences(points)
    pair = _first(best)[None]
    return _pair_action(low.gather(0, pair)[0], high.gather(0, pair)[0])


def zeillinger_lexicographic(points: Tensor, noise: Tensor) -> Tensor:
    """Lexicographically smallest subset of all pairs with the smallest (L, S) of `zeillinger`: a function of the set of
    points, for any order of the rows."""
    dimension = points.shape[-1]
    best, low, high = _shortest_differences(points)
    order = torch.minimum(low, high) * dimension + torch.maximum(low, high)
    smallest = -(-order).where(best, 1 - dimension**2).amax(0)  # without a pair twice the last coordinate, so {0, 1}
    return _pair_action(smallest // dimension, smallest % dimension)


def weak_spivakovsky(points: Tensor, noise: Tensor) -> Tensor:
    """A smallest hitting set, all equally likely: after `reposition`, every point has a positive coordinate in it. (A
    set of one never hits them all then.) This weak form of `spivakovsky`, from the reference game, does not read how
    large the coordinates are, and does not win against every agent."""
    return choose(_smallest_hitting(points), noise)


def weak_spivakovsky_first(points: Tensor, noise: Tensor) -> Tensor:
    """The smallest hitting set of lowest number."""
    return _smallest_hitting(points).byte().argmax(1)


def random_agent(points: Tensor, coords: Tensor, noise: Tensor) -> Tensor:
    """A coordinate of the subset, all equally likely."""
    return choose(coords, noise)


def first_agent(points: Tensor, coords: Tensor, noise: Tensor) -> Tensor:
    """The lowest coordinate of the subset."""
    return coords.byte().argmax(1)


def last_agent(points: Tensor, coords: Tensor, noise: Tensor) -> Tensor:
    """The highest coordinate of the subset."""
    return coords.shape[1] - 1 - coords.flip(1).byte().argmax(1)


HOSTS: dict[str, Host] = {
    **{"random_pair": random_pair, "random_subset": random_subset, "all_coordinates": all_coordinates},
    **{"zeillinger": zeillinger, "zeillinger_lexicographic": zeillinger_lexicographic, "spivakovsky": spivakovsky},
    **{"weak_spivakovsky": weak_spivakovsky, "weak_spivakovsky_first": weak_spivakovsky_first},
}
AGENTS: dict[str, Agent] = {"random": random_agent, "first": first_agent, "last": last_agent}


def _shortest_differences(points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Three columns `[P, B]` for P pairs of rows: whether the pair has the smallest (L, S) of its game, and the first
    coordinates with the smallest and with the largest difference. A game that is over has no such pair."""
    columns = trim(points).permute(2, 1, 0).contiguous()  # [n, N, B]
    first, second = torch.triu_indices(columns.shape[1], columns.shape[1], 1, device=points.device)
    best = (columns[0, first] >= 0) & (columns[0, second] >= 0)
    difference = columns[:, first] - columns[:, second]  # [n, P, B]
    low, high = -(-difference).amax(0), difference.amax(0)  # `amin` is slow
    lowest, highest = difference == low, difference == high
    for key in (high - low, lowest.long().sum(0) + highest.long().sum(0)):
        smallest = -(-key).where(best, -key.max()).amax(0)
        best = best & (key == smallest)
    return best, _first(lowest), _first(highest)


def _first(mask: Tensor) -> Tensor:
    """First true index along the first dimension of `mask`, or 0 if there is none. (`argmax` is slow.)"""
    rank = torch.arange(len(mask), 0, -1, device=mask.device).view(-1, *[1] * (mask.ndim - 1))
    return (len(mask) - (mask * rank).amax(0)) % len(mask)


def _pair_action(first: Tensor, second: Tensor) -> Tensor:
    """Action `[B]` that names two coordinates (see `rules.action_of`), or {0, 1} if they are the same."""
    action = (1 << first) + (1 << second) - torch.maximum(first, second) - 2
    return action.masked_fill(first == second, 0)


def _smallest_hitting(points: Tensor) -> Tensor:
    """Mask of the smallest hitting sets, `[B, A]` bool; a game that is over needs none, so all pairs are.

    A set hits all points unless its complement contains the support of one. The loop over coordinates finds which of
    the 2**n sets contain a support."""
    dimension = points.shape[-1]
    table, sets = subsets(dimension, points.device), 2**dimension
    supports = codes_of(reposition(points) > 0).T  # [N, B]; 0 for padding, and for the last point of a game
    contains = torch.zeros(sets, len(points), dtype=torch.bool, device=points.device).scatter_(0, supports, True)
    contains[0] = False
    for coordinate in range(dimension):
        without, with_it = contains.view(sets >> coordinate + 1, 2, 2**coordinate, len(points)).unbind(1)
        with_it |= without
    hitting = ~contains[sets - 1 - codes_of(table)].T
    size = table.sum(1).where(hitting, dimension)
    return hitting & (size == size.amin(1, keepdim=True))
