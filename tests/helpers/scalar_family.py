"""One stream of the point game as a task, in plain Python: a hidden opponent plays the other side, game after game.

Random numbers are those of `icrl.randomness`, here as whole numbers of any size that are cut to 64 bits.
"""

from typing import TypeVar

import numpy as np
import scalar_points as scalar
from scalar_points import Point, Points, Subset

Choice = TypeVar("Choice")
Seen = tuple[list[int], int, bool, bool, list[int], int]  # the first six fields of `contracts.Step`, of one stream

_WORD = 2**64
_HOST, _AGENT = 0, 1


def mix(seed: int, counter: int) -> int:
    """64 bits, as an unsigned number."""
    x = (seed * 0x94D049BB133111EB + (counter + 1) * 0x9E3779B97F4A7C15) % _WORD
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % _WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB % _WORD
    return x ^ x >> 31


def uniform(seed: int, counter: int) -> np.float32:
    return np.float32((mix(seed, counter) >> 40) / 2**24)


def one_of(choices: list[Choice], noise: np.float32) -> Choice:
    return choices[int(min(noise, np.float32(1 - 2**-24)) * np.float32(len(choices)))]


class Stream:
    """Games of points with `shown` = (rows, coordinates), of which the largest at the start is `highest`."""

    def __init__(self, role, opponent, highest, seed, shown, max_steps):
        self.role, self.highest, self.seed = role, highest, seed
        (self.rows, self.dimension), self.max_steps = shown, max_steps
        self.name, self.is_random = opponent, opponent in ("random", "random_subset")
        self.episode = 0
        self._begin()

    def step(self, action: int) -> Seen:
        subset, axis = self.asked, action
        if self.role == "host":
            subset = scalar.subsets(self.dimension)[action]
            axis = self._coordinate(subset)
        assert axis in subset
        self.points = scalar.reposition(scalar.reduce(scalar.shift(self.points, subset, axis)))
        self.timestep, self.answer = self.timestep + 1, axis
        if self.role == "agent":
            self.asked = self._subset()
        terminated, truncated = len(scalar.left(self.points)) == 1, self.timestep == self.max_steps
        reward = int(terminated if self.role == "host" else not terminated)
        final_obs = self.obs
        if terminated or truncated:
            self.episode += 1
            self._begin()
        return self.obs, reward, terminated, truncated, final_obs, self.timestep

    @property
    def obs(self) -> list[int]:
        numbers = [[x + 1 for x in point] for point in self._in_order()]
        numbers += [[0] * self.dimension] * (self.rows - len(numbers))
        legal = [True] * len(scalar.subsets(self.dimension))
        if self.role == "agent":
            legal = [coordinate in self.asked for coordinate in range(self.dimension)]
        chosen = [coordinate == self.answer for coordinate in range(self.dimension)]
        return [int(x) for row in (*numbers, chosen, legal) for x in row]

    def _begin(self) -> None:
        self.timestep, self.answer = 0, -1
        self.points, attempt = self._points(0), 0
        while len(scalar.left(self.points)) < 2:
            attempt += 1
            self.points = self._points(attempt)
        self.points = self._in_order()
        self.asked = self._subset() if self.role == "agent" else ()

    def _points(self, attempt: int) -> Points:
        seed = mix(mix(self.seed, self.episode), attempt)
        flat = [mix(seed, counter) // 4 % (self.highest + 1) for counter in range(self.rows * self.dimension)]
        return scalar.reduce([tuple(flat[at : at + self.dimension]) for at in range(0, len(flat), self.dimension)])

    def _in_order(self) -> list[Point]:
        return sorted(scalar.left(self.points), reverse=True)

    def _noise(self, role: int) -> np.float32:
        return uniform(mix(self.seed, self.episode + 2**40), 2 * self.timestep + role)

    def _coordinate(self, subset: Subset) -> int:
        """Answer of the opponent, as an agent."""
        noise = self._noise(_AGENT)
        if self.is_random:
            return one_of([*subset], noise)
        kind, _, number = self.name.partition("_")
        if kind == "table":
            return one_of([*subset], uniform(mix(7, int(number)), scalar.subsets(self.dimension).index(subset)))
        if kind == "order":
            return next(c for c in map(int, number) if c in subset)
        return {"first": min, "last": max}[kind](subset)

    def _subset(self) -> Subset:
        """Subset of the opponent, as a host: ties are broken in the order of the rows, which moves do not change."""
        noise, every, points = self._noise(_HOST), scalar.subsets(self.dimension), scalar.left(self.points)
        if self.is_random:
            return one_of(every, noise)
        pairs = [subset for subset in every if len(subset) == 2]
        if self.name == "all_coordinates":
            return every[-1]
        if self.name == "random_pair" or (len(points) < 2 and self.name == "weak_spivakovsky"):
            return one_of(pairs, noise)
        if len(points) < 2:
            return (0, 1)
        if self.name.startswith("weak"):
            return one_of(scalar.smallest_hitting_sets(points)[: 1 if self.name.endswith("first") else None], noise)
        return scalar.spivakovsky(points) if self.name == "spivakovsky" else getattr(scalar, self.name)(points, None)
