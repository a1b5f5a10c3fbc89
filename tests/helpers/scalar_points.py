"""Polyhedra game in plain Python: one game at a time, points as tuples of ints or fractions of any size, None for a
removed row."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations
from operator import le
from random import Random

Point = tuple[int | Fraction, ...]
Points = list[Point | None]
Subset = tuple[int, ...]
Host = Callable[[list[Point], Random], Subset]
Agent = Callable[[Subset, Random], int]


def left(points: Points) -> list[Point]:
    return [point for point in points if point is not None]


def shift(points: Points, subset: Subset, axis: int) -> Points:
    if axis not in subset or len(left(points)) < 2:
        return points
    return [point and (*point[:axis], sum(point[k] for k in subset), *point[axis + 1 :]) for point in points]


def reduce(points: Points) -> Points:
    present = [(index, point) for index, point in enumerate(points) if point is not None]

    def removed(index: int, point: Point) -> bool:
        return any(all(map(le, low, point)) and (low != point or earlier < index) for earlier, low in present)

    return [None if point is None or removed(index, point) else point for index, point in enumerate(points)]


def rescale(points: Points) -> Points:
    largest = max(map(max, left(points))) or 1
    return [point and tuple(Fraction(x) / largest for x in point) for point in points]


def reposition(points: Points) -> Points:
    least = [min(column) for column in zip(*left(points), strict=True)]
    return [point and tuple(x - low for x, low in zip(point, least, strict=True)) for point in points]


def subsets(dimension: int) -> list[Subset]:
    """The host's actions in order."""
    found = [each for size in range(2, dimension + 1) for each in combinations(range(dimension), size)]
    return sorted(found, key=lambda subset: sum(2**c for c in subset))


def zeillinger_keys(points: list[Point]) -> list[tuple[int | Fraction, int, Subset]]:
    """(length, count, subset) of every pair of points, in order of the pairs."""
    keys = []
    for first, second in combinations(points, 2):
        difference = [a - b for a, b in zip(first, second, strict=True)]
        low, high = min(difference), max(difference)
        subset = tuple(sorted({difference.index(low), difference.index(high)}))
        keys.append((high - low, difference.count(low) + difference.count(high), subset if low < high else (0, 1)))
    return keys


def zeillinger(points: list[Point], _: Random) -> Subset:
    return min(zeillinger_keys(points), key=lambda key: key[:2])[2]


def zeillinger_lexicographic(points: list[Point], _: Random) -> Subset:
    return min(zeillinger_keys(points))[2]


def smallest_hitting_sets(points: list[Point]) -> list[Subset]:
    """In the host's order, after repositioning."""
    supports = [{c for c, x in enumerate(point) if x > 0} for point in left(reposition([*points]))]
    hitting = [each for each in subsets(len(points[0])) if all(support & {*each} for support in supports)]
    return [each for each in hitting if len(each) == min(map(len, hitting))]


def spivakovsky(points: list[Point]) -> Subset:
    """In exact fractions, on the coordinates that are left alone."""
    coordinates, named = [*range(len(points[0]))], set[int]()
    rows, first = points, True
    while rows:
        least = [min(column) for column in zip(*rows, strict=True)]
        shifted = left(reposition([*rows]))
        level = Fraction(min(map(sum, shifted)))
        if not level:
            total = Fraction(0)
            for place in sorted(range(len(least)), key=lambda place: -least[place]):
                named |= {coordinates[place]} if total < 1 else set()
                total += least[place]
            break
        lowest = [point for point in shifted if sum(point) == level]
        away = {place for point in lowest for place, x in enumerate(point) if x > 0}
        families = [(shifted, level)] + ([] if first else [(rows, Fraction(1))])  # and the sum they are projected from
        kept = [place for place in range(len(coordinates)) if place not in away]
        rows = [
            tuple(point[place] / (sum_from - inside) for place in kept)
            for family, sum_from in families
            for point in family
            if kept and (inside := sum(point[place] for place in away)) < sum_from
        ]
        named |= {coordinates[place] for place in away}
        coordinates, first = [coordinates[place] for place in kept], False
    return tuple(sorted(named))


def random_pair(points: list[Point], random: Random) -> Subset:
    return tuple(random.sample(range(len(points[0])), 2))


def random_agent(subset: Subset, random: Random) -> int:
    return random.choice(subset)


def start(random: Random, num_points: int, dimension: int, max_value: int) -> Points:
    """Random points of a game that is not over."""
    points: Points = []
    while len(left(points)) < 2:
        rows = range(num_points)
        points = reduce([tuple(random.randint(0, max_value) for _ in range(dimension)) for _ in rows])
    return points


def play(points: Points, host: Host, agent: Agent, random: Random, max_steps: int) -> int:
    """Number of moves until the game is over, or `max_steps`."""
    for step in range(max_steps):
        if len(left(points)) < 2:
            return step
        subset = host(left(points), random)
        points = reduce(shift(points, subset, agent(subset, random)))
    return max_steps


def rows_of(points: Sequence[Sequence[int | float]]) -> Points:
    """Points from rows with padding."""
    return [tuple(row) if min(row) >= 0 else None for row in points]
