"""Rules of the polyhedra game (Spivakovsky, "A solution to Hironaka's polyhedra game", 1983) on batches of point sets.

A position is a finite set of points with coordinates >= 0. The *host* names a subset I of at least two coordinates. The
*agent* answers with one coordinate i of I, and every point moves: x_i <- sum of x_k over k in I. A point is removed if
another point is below or equal to it in every coordinate. The host wants one point left, the agent more than one.

B games, N rows for points, n coordinates, A = 2**n - n - 1 subsets. Positions are `[B, N, n]`, int64 or float; a row of
`PADDING` is no point. Arithmetic is exact in int64 while n times the largest coordinate is below 2**63, and in float64
while it is at most 2**53. The functions return new tensors. Games innermost in memory are the fastest layout.
"""

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from icrl.randomness import integers, mix

PADDING = -1
_CPU = torch.device("cpu")
_CACHED_GAMES = 1024  # games whose pairs of points fit the cache of a CPU


def available(points: Tensor) -> Tensor:
    """Mask of the rows that are points, `[B, N]` bool."""
    return points[..., 0] >= 0


def is_over(points: Tensor) -> Tensor:
    """Mask of the games with at most one point left, `[B]` bool."""
    return available(points).sum(1) <= 1


def shift(points: Tensor, coords: Tensor, axis: Tensor) -> Tensor:
    """Move every point: x_i <- sum of x_k over k in I, with i = `axis` `[B]` and I the true entries of `coords`
    `[B, n]`. A game that is over stays as it is, and so does one whose `axis` is not in I."""
    coordinates = torch.arange(points.shape[-1], device=points.device)
    coords = coords.T.contiguous().T  # games innermost
    moved = coords.bool() & ~is_over(points)[:, None] & (coordinates == axis[:, None])
    total = (points * coords[:, None]).permute(2, 1, 0).sum(0, dtype=points.dtype).T  # [B, N]; negative for padding
    # A move only raises coordinates, so a maximum with the sum applies it; `where` takes several times as long.
    limit = torch.where(moved, _highest(points.dtype), PADDING).to(points.dtype)
    return torch.maximum(points, torch.minimum(total[..., None], limit[:, None]))


def reduce(points: Tensor) -> Tensor:
    """Remove x if some y differs from it and has y <= x in every coordinate; of equal points keep the first. Rows keep
    their positions. Memory is O(B N^2)."""
    size = _CACHED_GAMES if points.device.type == "cpu" else max(1, len(points))
    removed = torch.cat([_removed(part) for part in points.split(size)], dim=1).T[..., None]  # [B, N, 1]
    return torch.where(removed < 0, PADDING, points) if points.is_floating_point() else points | removed


def rescale(points: Tensor) -> Tensor:
    """Divide each game by its largest coordinate (by 1 if that is 0): float64 in [0, 1] for int64, else the given
    dtype. The ratios are rounded, so play by the rules on positions that are not rescaled."""
    points = points if points.is_floating_point() else points.double()
    largest = points.amax((1, 2), keepdim=True)
    return torch.where(available(points)[..., None], points / largest.where(largest > 0, 1.0), PADDING)


def reposition(points: Tensor) -> Tensor:
    """Subtract from each coordinate its minimum over the points of the game, which goes on as before."""
    present = available(points)[..., None]
    least = -(-points).masked_fill(~present, -_highest(points.dtype)).amax(1, keepdim=True)  # `amin` is slow
    return torch.where(present, points - least, PADDING)


def canonical(points: Tensor) -> Tensor:
    """Sort the rows in descending lexicographic order, padding last: the same for any order of the points."""
    dimension, floats = points.shape[-1], points.is_floating_point() or not points.numel()
    bits = 64 if floats else (int(points.amax()) + 1).bit_length()  # for a coordinate plus one
    if dimension * bits < 64:  # a row is one integer then, and sorting that is several times as fast
        places = bits * torch.arange(dimension - 1, -1, -1, device=points.device)
        rows = ((points + 1) << places).sum(-1).sort(dim=1, descending=True).values.T.contiguous()  # [N, B]
        return ((rows >> places[:, None, None]) & ((1 << bits) - 1)).sub(1).to(points.dtype).permute(2, 1, 0)
    for coordinate in reversed(range(dimension)):
        order = points[..., coordinate].argsort(dim=1, descending=True, stable=True)
        points = points.gather(1, order[..., None].expand_as(points))
    return points


def trim(points: Tensor) -> Tensor:
    """Drop the last rows that are padding in every game; at least two rows stay."""
    highest = points[..., 0].amax(0) if len(points) else torch.empty(0)  # `any` is slow
    return points[:, : max([1, *available(highest[:, None]).nonzero()[:, 0].tolist()]) + 1]


def random_points(seeds: Tensor, max_num_points: int, dimension: int, max_value: int) -> Tensor:
    """Coordinates uniform in 0 .. `max_value`, int64: a function of each game's own seed in `seeds` `[B]`."""
    counters = torch.arange(max_num_points * dimension, device=seeds.device)[:, None]
    return integers(seeds, counters, max_value + 1).view(max_num_points, dimension, -1).permute(2, 0, 1)


def random_starts(seeds: Tensor, *size: int) -> Tensor:
    """`random_points`, reduced and drawn again while the game would be over, so that every game has a move. Needs at
    least two points and `max_value` >= 1."""
    points, attempt = reduce(random_points(mix(seeds, 0), *size)), 0
    while len(over := is_over(points).nonzero()[:, 0]):
        attempt += 1
        points[over] = reduce(random_points(mix(seeds[over], attempt), *size))
    return points


@cache
def subsets(dimension: int, device: torch.device = _CPU) -> Tensor:
    """Actions of the host, `[A, n]` bool: the subsets of at least two coordinates by increasing code, the sum of 2**c.
    The number of a subset is its code - floor(log2(code)) - 2. The table is shared, so do not write to it."""
    codes = torch.arange(2**dimension, device=device)
    members = (codes[:, None] >> torch.arange(dimension, device=device)) % 2 == 1
    return members[members.sum(1) >= 2]


def codes_of(coords: Tensor) -> Tensor:
    """Code of each set of coordinates `[..., n]` bool: the sum of 2**c, `[...]` int64."""
    return (coords.long() << torch.arange(coords.shape[-1], device=coords.device)).sum(-1)


def subset_of(action: Tensor, dimension: int) -> Tensor:
    """Subsets `[B, n]` bool that the host's actions `[B]` name. Raises `ValueError` for a number out of range."""
    table = subsets(dimension, action.device)
    if len(wrong := action[(action < 0) | (action >= len(table))]):
        raise ValueError(f"host action {int(wrong[0])}: must be >= 0 and < {len(table)} in dimension {dimension}")
    return table[action]


def narrowed(points: Tensor, factor: int = 1) -> Tensor:
    """Convert integers to the smallest dtype whose highest number is above `factor` times each of them: a CPU processes
    several times as many at once. Floats stay as they are."""
    if points.is_floating_point() or not points.numel():
        return points
    largest = factor * int(points.amax())
    fitting = (dtype for dtype in (torch.int8, torch.int16, torch.int32) if largest < torch.iinfo(dtype).max)
    return points.to(next(fitting, points.dtype))


def _removed(points: Tensor) -> Tensor:
    """Rows that `reduce` removes, `[N, B]` integers: -1 for a removed row, else 0. All of it is arithmetic on small
    integers with games innermost, because comparisons and masks take several times as long."""
    if points.is_floating_point():  # the bits of floats >= 0 are in the order of the floats; padding is above all
        ordered = points.double().where(points >= 0, math.inf).abs().view(torch.int64)
    else:
        points = narrowed(points)
        ordered = points & _highest(points.dtype)  # of -1 this is the highest number
    columns = ordered.permute(2, 1, 0).contiguous()  # [n, N, B]
    slack = columns[0, :, None] - columns[0]  # [N, N, B]: how far row i is above row j, the least over coordinates
    for column in columns[1:]:
        torch.minimum(slack, column[:, None] - column, out=slack)
    # A later row j removes row i only if they are not equal, that is if slack[j, i] < 0, so that ~slack[j, i] >= 0.
    later = torch.ones(slack.shape[:2], dtype=torch.bool, device=points.device).triu()[..., None]
    unequal = torch.maximum(~slack.transpose(0, 1), -later.to(slack.dtype))
    most = torch.minimum(slack, unequal, out=slack).amax(1)
    return ~(most >> (8 * most.itemsize - 1))


def _highest(dtype: torch.dtype) -> Any:
    return math.inf if dtype.is_floating_point else torch.iinfo(dtype).max
