"""The polyhedra game: rules on batches of point sets.

A position is a finite set of points with coordinates >= 0. The *host* names a subset I of at least two coordinates, the
*agent* answers with one coordinate i of I, and every point moves: x_i <- sum of x_k over k in I. Points that another
point is below or equal to in every coordinate are removed. The host wants one point left, the agent none of that.
(Hironaka's game; Spivakovsky, "A solution to Hironaka's polyhedra game", 1983.)

Legend: B games, N rows for points, n coordinates, A = 2**n - n - 1 subsets. Positions are `[B, N, n]`, int64 or float;
a row of `PADDING` is no point. Integers in int64 are exact as long as n times the largest coordinate is below 2**63, in
float64 as long as it is at most 2**53. The functions return new tensors. They are fastest where games are innermost in
memory, as `random_starts` lays them out; the result is the same for any layout.
"""

import math
from functools import cache

import torch
from torch import Tensor

from icrl.randomness import integers, mix

PADDING = -1
MAX_DIMENSION = 16  # the tables of subsets have 2**n rows
CPU = torch.device("cpu")
_CACHED_GAMES = 1024  # whose pairs of points a CPU's cache holds


def available(points: Tensor) -> Tensor:
    """Which rows are points, `[B, N]` bool: padding is negative, so that zero is a coordinate like any other."""
    return points[..., 0] >= 0


def num_points(points: Tensor) -> Tensor:
    """Points left in each game, `[B]` int64."""
    return available(points).sum(1)


def is_over(points: Tensor) -> Tensor:
    """Whether at most one point is left, `[B]` bool."""
    return num_points(points) <= 1


def legal_axes(points: Tensor, coords: Tensor) -> Tensor:
    """What the agent may answer to the subsets `coords` `[B, n]`, `[B, n]` bool: nothing where the game is over."""
    return coords.bool() & ~is_over(points)[:, None]


def shift(points: Tensor, coords: Tensor, axis: Tensor) -> Tensor:
    """x_i <- sum of x_k over k in I, for every point: i = `axis` `[B]`, I the true entries of `coords` `[B, n]`.

    Games that are over stay as they are, and so do those where `axis` is not in I."""
    coordinates = torch.arange(points.shape[-1], device=points.device)
    coords = coords.T.contiguous().T  # games innermost
    moved = legal_axes(points, coords) & (coordinates == axis[:, None])
    total = (points * coords[:, None]).permute(2, 1, 0).sum(0, dtype=points.dtype).T  # [B, N]; negative for padding
    # A move only raises coordinates, so that a maximum does; `where` takes several times as long.
    return torch.maximum(points, torch.minimum(total[..., None], _highest_or_padding(moved, points.dtype)[:, None]))


def reduce(points: Tensor) -> Tensor:
    """Keep the points no other is below: x goes if some y differs from it and has y <= x in every coordinate, and of
    equal points all but the one of lowest index go.

    An approximation of the vertices of the Newton polytope, after the reference game: convexity is ignored, so that a
    point inside the hull stays unless it is dominated. Rows keep their places. Memory O(B N^2)."""
    size = _CACHED_GAMES if points.device.type == "cpu" else max(1, len(points))
    removed = torch.cat([_removed(part) for part in points.split(size)], dim=1).T[..., None]  # [B, N, 1]
    return torch.where(removed < 0, PADDING, points) if points.is_floating_point() else points | removed


def rescale(points: Tensor) -> Tensor:
    """Divide each game by its largest coordinate (by 1 where that is 0): float64 in [0, 1] for int64, else the dtype
    given. Rounded: only ratios that the float can hold come out exact, so the rules are best played on what is not
    rescaled."""
    points = points if points.is_floating_point() else points.double()
    largest = points.amax((1, 2), keepdim=True)
    return torch.where(available(points)[..., None], points / largest.where(largest > 0, 1.0), PADDING)


def reposition(points: Tensor) -> Tensor:
    """Subtract from each coordinate its minimum over the points of the game. What a move does to differences of points
    depends on these differences alone, so the game goes on as before."""
    present = available(points)[..., None]
    least = -(-points).masked_fill(~present, -_highest(points.dtype)).amax(1, keepdim=True)  # `amin` is slow
    return torch.where(present, points - least, PADDING)


def canonical(points: Tensor) -> Tensor:
    """The rows in descending lexicographic order, padding last: the same for any order of the points."""
    dimension, bits = points.shape[-1], _bits(points)
    if dimension * bits < 64:  # a row is one integer then, and sorting that is several times as fast
        places = bits * torch.arange(dimension - 1, -1, -1, device=points.device)
        rows = ((points + 1) << places).sum(-1).sort(dim=1, descending=True).values.T.contiguous()  # [N, B]
        return ((rows >> places[:, None, None]) & ((1 << bits) - 1)).sub(1).to(points.dtype).permute(2, 1, 0)
    for coordinate in reversed(range(dimension)):
        order = points[..., coordinate].argsort(dim=1, descending=True, stable=True)
        points = points.gather(1, order[..., None].expand_as(points))
    return points


def trim(points: Tensor) -> Tensor:
    """Without the last rows, where these are padding in every game; at least two rows stay."""
    highest = points[..., 0].amax(0) if len(points) else torch.empty(0)  # `any` is slow
    return points[:, : max([1, *available(highest[:, None]).nonzero()[:, 0].tolist()]) + 1]


def random_points(seeds: Tensor, max_num_points: int, dimension: int, max_value: int) -> Tensor:
    """Coordinates uniform in 0 .. `max_value`, int64: a function of each game's own seed in `seeds` `[B]`."""
    counters = torch.arange(max_num_points * dimension, device=seeds.device)[:, None]
    flat = integers(seeds, counters, max_value + 1)  # [N * n, B]
    return flat.view(max_num_points, dimension, -1).permute(2, 0, 1)


def random_starts(seeds: Tensor, max_num_points: int, dimension: int, max_value: int) -> Tensor:
    """Random points, reduced, and drawn anew where the game would be over: an episode has a move to make. Needs at
    least two points and `max_value` >= 1."""
    points = reduce(random_points(mix(seeds, 0), max_num_points, dimension, max_value))
    attempt = 0
    while len(over := is_over(points).nonzero()[:, 0]):
        attempt += 1
        again = reduce(random_points(mix(seeds[over], attempt), max_num_points, dimension, max_value))
        points[over] = again
    return points


@cache
def subsets(dimension: int, device: torch.device = CPU) -> Tensor:
    """The host's actions, `[A, n]` bool: the subsets of at least two coordinates by increasing sum of 2**c. To be read
    only."""
    codes = torch.arange(2**dimension, device=device)
    members = (codes[:, None] >> torch.arange(dimension, device=device)) % 2 == 1
    return members[members.sum(1) >= 2]


@cache
def _ids(dimension: int, device: torch.device) -> Tensor:
    """The number of the subset with each sum of 2**c, `[2**n]`; -1 where it has fewer than two coordinates."""
    codes = codes_of(subsets(dimension, device))
    return torch.full((2**dimension,), -1, device=device).index_put((codes,), torch.arange(len(codes), device=device))


def codes_of(coords: Tensor) -> Tensor:
    """Sets of coordinates `[..., n]` bool as the sums of 2**c, `[...]` int64."""
    return (coords.long() << torch.arange(coords.shape[-1], device=coords.device)).sum(-1)


def subset_of(action: Tensor, dimension: int) -> Tensor:
    """The subsets `[B, n]` bool that the host's actions `[B]` name. Raises `ValueError` for what is no action."""
    table = subsets(dimension, action.device)
    wrong = action[(action < 0) | (action >= len(table))]
    if len(wrong):
        raise ValueError(f"host action {int(wrong[0])}: must be >= 0 and < {len(table)} in dimension {dimension}")
    return table[action]


def action_of(coords: Tensor) -> Tensor:
    """The host's actions `[B]` for the subsets `coords` `[B, n]`: code - floor(log2(code)) - 2 with code the sum of
    2**c. Raises `ValueError` for fewer than two coordinates."""
    action = _ids(coords.shape[-1], coords.device)[codes_of(coords)]
    if (action < 0).any():
        raise ValueError("a host's subset must have at least two coordinates")
    return action


def narrowed(points: Tensor, factor: int = 1) -> Tensor:
    """The same integers in the smallest dtype whose highest number is above `factor` times each of them: a CPU treats
    several times as many at once. Floats stay as they are."""
    if points.is_floating_point() or not points.numel():
        return points
    largest = factor * int(points.amax())
    fitting = (dtype for dtype in (torch.int8, torch.int16, torch.int32) if largest < torch.iinfo(dtype).max)
    return points.to(next(fitting, points.dtype))


def _bits(points: Tensor) -> int:
    """How many bits a coordinate plus one takes, 64 for floats."""
    if points.is_floating_point() or not points.numel():
        return 64
    return (int(points.amax()) + 1).bit_length()


def _removed(points: Tensor) -> Tensor:
    """What `reduce` removes, `[N, B]` integers: -1 where a row goes, else 0. All is arithmetic on small integers, games
    innermost: comparisons and masks take several times as long."""
    columns = _ordered(points).permute(2, 1, 0).contiguous()  # [n, N, B]
    slack = columns[0, :, None] - columns[0]  # [N, N, B]: how far row i is above row j, the least over coordinates
    for column in columns[1:]:
        torch.minimum(slack, column[:, None] - column, out=slack)
    # Row i goes for a later row j only if they are not equal, that is if slack[j, i] < 0, so that ~slack[j, i] >= 0.
    later = torch.ones(slack.shape[:2], dtype=torch.bool, device=points.device).triu()[..., None]
    unequal = torch.maximum(~slack.transpose(0, 1), -later.to(slack.dtype))
    most = torch.minimum(slack, unequal, out=slack).amax(1)
    return ~(most >> (8 * most.itemsize - 1))


def _ordered(points: Tensor) -> Tensor:
    """Integers in the order of the coordinates, padding above all."""
    if points.is_floating_point():  # the bits of floats >= 0 are in the order of the floats
        return points.double().where(points >= 0, math.inf).abs().view(torch.int64)
    points = narrowed(points)
    return points & torch.iinfo(points.dtype).max  # of -1 this is the highest number


def _highest(dtype: torch.dtype) -> float:
    return math.inf if dtype.is_floating_point else torch.iinfo(dtype).max


def _highest_or_padding(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """The highest number of `dtype` where `mask` is true, padding elsewhere."""
    return torch.where(mask, _highest(dtype), PADDING).to(dtype)
