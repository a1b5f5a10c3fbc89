"""Exact vertices of Newton polyhedra, conv(S) + the points with coordinates >= 0, for batches of point sets S.

A point p of S is a vertex unless a mean of other points of S is below or equal to it in every coordinate. (Dominance,
`rules.reduce`, looks for one such point instead of a mean.) With the differences d_j = q_j - p to the K other points,
p is no vertex if and only if the linear program

    maximise sum of l_j   with   sum of l_j * d_j <= 0 in all n coordinates,   l_j >= 0

is unbounded; otherwise its maximum is 0. It is solved by the simplex method from l = 0, where no first phase is needed,
with Bland's rule, which ends although every step is degenerate (Bland, "New finite pivoting rules for the simplex
method", 1977). Integer pivoting keeps the tableau in integers (Edmonds, "Systems of distinct representatives and linear
algebra", 1967): every entry is a minor of the first tableau, so the division by the last pivot has no remainder.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from icrl.extensions.point_game.rules import PADDING, available, reduce

Integers = NDArray[Any]  # int64, or Python's integers where these could overflow


def reduce_to_hull(points: Tensor) -> Tensor:
    """Remove all points of int64 or narrower positions `[B, N, n]` that are no vertices of their game's Newton
    polyhedron; of equal points keep the first. Rows keep their positions. Computed on the CPU."""
    points = reduce(points)
    counts = available(points).sum(1)
    for count in counts[counts > 2].unique().tolist():  # two points, of which neither dominates, are vertices
        games = (counts == count).nonzero()[:, 0]
        rows = available(points[games]).nonzero()[:, 1].view(len(games), count)  # of the points in each game
        left = points[games[:, None], rows].cpu().numpy().astype(np.int64)
        inside = torch.from_numpy(~is_vertex(left)).to(points.device)
        points[games[:, None].expand_as(rows)[inside], rows[inside]] = PADDING
    return points


def is_vertex(points: Integers) -> NDArray[np.bool_]:
    """Mask `[G, K + 1]` of the vertices among the points `[G, K + 1, n]` of G games, of which none dominates another
    in its game."""
    games, count, dimension = points.shape
    others = ~np.eye(count, dtype=bool)
    differences = (points[:, None] - points[:, :, None])[:, others].reshape(games * count, count - 1, dimension)
    largest = int(np.abs(differences).max())
    # Hadamard's bound of a minor with the row of ones, squared and doubled: no product and no difference is larger.
    if 2 * (dimension + 1) ** (dimension + 1) * max(largest, 1) ** (2 * dimension) >= 2**63:
        differences = differences.astype(object)
    return ~_is_unbounded(differences).reshape(games, count)


def _is_unbounded(differences: Integers) -> NDArray[np.bool_]:
    """Mask `[P]` of the unbounded ones among P linear programs, for differences d `[P, K, n]`.

    A tableau `[n + 1, K + n]` has a row for each basic variable and, last, the row of reduced costs; its columns are l
    and the slacks. The right side is 0 throughout, so all positive rows tie and the smallest basic variable leaves."""
    programs, count, dimension = differences.shape
    slacks = np.broadcast_to(np.eye(dimension, dtype=np.int64), (programs, dimension, dimension))
    costs = np.broadcast_to(np.arange(count + dimension) < count, (programs, 1, count + dimension)).astype(np.int64)
    rows = np.concatenate([differences.transpose(0, 2, 1), slacks.astype(differences.dtype)], 2)
    tableau = np.concatenate([rows, costs.astype(differences.dtype)], 1)
    basis = np.tile(np.arange(count, count + dimension), (programs, 1))
    last, unbounded, going = tableau[:, 0, 0] * 0 + 1, np.zeros(programs, dtype=bool), np.arange(programs)
    while len(going):
        improving = tableau[:, -1] > 0
        entering = improving.argmax(1)  # the first variable: Bland's rule
        column = np.take_along_axis(tableau, entering[:, None, None], 2)  # [P, n + 1, 1]
        leaving = np.where(column[:, :-1, 0] > 0, basis, count + dimension).argmin(1)
        pivot = np.take_along_axis(column[:, :, 0], leaving[:, None], 1)[:, 0]
        unbounded[going[improving.any(1) & (pivot <= 0)]] = True
        kept = improving.any(1) & (pivot > 0)
        going, tableau, basis, last, column = (part[kept] for part in (going, tableau, basis, last, column))
        entering, leaving, pivot = (part[kept][:, None, None] for part in (entering, leaving, pivot))
        row = np.take_along_axis(tableau, leaving, 1)
        pivoted = (tableau * pivot - column * row) // last[:, None, None]
        np.put_along_axis(pivoted, leaving, row, 1)
        np.put_along_axis(basis, leaving[:, 0], entering[:, 0], 1)
        tableau, last = pivoted, pivot[:, 0, 0]
    return unbounded
