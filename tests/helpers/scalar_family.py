"""One stream of the point game as a task, in plain Python: a hidden opponent plays the other side, game after game.

Chance is that of `icrl.randomness`: whole numbers of any size here, cut to 64 bits.
"""

from typing import NamedTuple, TypeVar

import numpy as np
import scalar_points as scalar
from scalar_points import Point, Points, Subset

Choice = TypeVar("Choice")

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
    return choices[int(noise * np.float32(len(choices)))]


def stretched(noise: np.float32) -> np.float32:
    return min(noise, np.float32(1 - 2**-24))


class Seen(NamedTuple):
    """As `contracts.Step`, of one stream, observations as lists."""

    obs: list[int]
    reward: int
    terminated: bool
    truncated: bool
    final_obs: list[int]
    timestep: int


class Stream:
    """Games of `dimension` coordinates that are shown as points of `width` coordinates, `rows` of them."""

    def __init__(
        self,
        role: str,
        opponent: str,
        dimension: int,
        cloud: dict[str, int],
        seed: int,
        shown: tuple[int, int],
        last: int,
    ) -> None:
        self.role, self.dimension, self.cloud, self.seed = role, dimension, cloud, seed
        self.rows, self.width = shown
        self.last = last
        self.name, _, chance = opponent.partition("@")
        self.chance = np.float32(1 if self.name in ("random", "random_subset") else chance or 0)
        self.episode = 0
        self._begin()

    def step(self, action: int) -> Seen:
        if self.role == "host":
            subset = scalar.subsets(self.width)[action]
            axis = self._coordinate(subset)
        else:
            assert self.asked is not None
            subset, axis = self.asked, action
        assert axis in subset and max(subset) < self.dimension
        self.points = scalar.reposition(scalar.reduce(scalar.shift(self.points, subset, axis)))
        self.timestep += 1
        self.answer = axis
        if self.role == "agent":
            self.asked = self._subset()
        terminated, truncated = len(scalar.left(self.points)) == 1, self.timestep == self.last
        reward = int(terminated if self.role == "host" else not terminated)
        final_obs = self.obs
        if terminated or truncated:
            self.episode += 1
            self._begin()
        return Seen(self.obs, reward, terminated, truncated, final_obs, self.timestep)

    @property
    def obs(self) -> list[int]:
        numbers = [[x + 1 for x in point] + [1] * (self.width - self.dimension) for point in self._in_order()]
        numbers += [[0] * self.width] * (self.rows - len(numbers))
        chosen = [int(coordinate == self.answer) for coordinate in range(self.width)]
        return [int(x) for row in numbers for x in row] + chosen + [int(legal) for legal in self._legal()]

    def _begin(self) -> None:
        self.timestep, self.answer = 0, -1
        self.points, attempt = self._points(0), 0
        while len(scalar.left(self.points)) < 2:
            attempt += 1
            self.points = self._points(attempt)
        self.points = self._in_order()
        self.asked = self._subset() if self.role == "agent" else None

    def _points(self, attempt: int) -> Points:
        seed, highest = mix(mix(self.seed, self.episode), attempt), self.cloud["max_value"] + 1
        counters = range(self.cloud["max_num_points"] * self.dimension)
        flat = [mix(seed, counter) // 4 % highest for counter in counters]
        points: Points = [tuple(flat[at : at + self.dimension]) for at in range(0, len(flat), self.dimension)]
        return scalar.reduce(points)

    def _in_order(self) -> list[Point]:
        return sorted(scalar.left(self.points), reverse=True)

    def _legal(self) -> list[bool]:
        if self.role == "agent":
            assert self.asked is not None
            return [coordinate in self.asked for coordinate in range(self.width)]
        return [max(subset) < self.dimension for subset in scalar.subsets(self.width)]

    def _noise(self, role: int) -> np.float32:
        return uniform(mix(self.seed, self.episode + 2**40), 2 * self.timestep + role)

    def _coordinate(self, subset: Subset) -> int:
        """The opponent's, as an agent."""
        noise = self._noise(_AGENT)
        if noise < self.chance:
            return one_of([*subset], stretched(noise / self.chance))
        kind, _, number = self.name.partition("_")
        if kind == "table":
            return one_of([*subset], uniform(mix(7, int(number)), scalar.subsets(self.width).index(subset)))
        if kind == "order":
            return next(c for c in map(int, number) if c in subset)
        return {"first": min, "last": max}[kind](subset)

    def _subset(self) -> Subset:
        """The opponent's, as a host: ties are broken in the order of the rows, which moves do not change."""
        noise, every = self._noise(_HOST), scalar.subsets(self.dimension)
        if noise < self.chance:
            return one_of(every, stretched(noise / self.chance))
        noise = stretched((noise - self.chance) / (1 - self.chance))
        points = scalar.left(self.points)
        if self.name == "all_coordinates":
            return every[-1]
        pairs = [subset for subset in every if len(subset) == 2]
        if self.name == "random_pair":
            return one_of(pairs, noise)
        if "spivakovsky" in self.name:
            choice = scalar.smallest_hitting_sets(points) if len(points) > 1 else pairs
            if self.name == "spivakovsky" and len(points) > 1:
                choice = [scalar.spivakovsky(points)]
            return one_of(choice if self.name == "weak_spivakovsky" else choice[:1], noise)
        keys = scalar.zeillinger_keys(points)
        if not keys:
            return (0, 1)
        best = min(key[:2] for key in keys)
        tied = [key[2] for key in keys if key[:2] == best]
        return min(tied) if self.name.endswith("lexicographic") else tied[0]
