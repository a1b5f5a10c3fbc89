"""Opponents of the world `point_game`: fixed players by name, which may play at random with some probability.

B streams, n coordinates, A subsets.
"""

from __future__ import annotations

import re
from itertools import permutations
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from icrl.contracts import ConfigError
from icrl.point_game.fixed_players import AGENTS, HOSTS, choose, random_subset
from icrl.point_game.rules import subsets
from icrl.randomness import mix, uniform

if TYPE_CHECKING:
    from icrl.point_game.world import PointGameConfig

_ORDER, _TABLES_SEED, _MOST_TABLES = "order_", 7, 10_000
_RANDOM = ("random", "random_subset")  # players that are nothing but noise
_FORM = re.compile(r"([^@]*)(?:@(1|0\.[0-9]*[1-9]))?")  # one way to write each noise
_TABLE = re.compile(r"(tables?)_(0|[1-9][0-9]{0,4})")
_MOST_ORDERED = 6  # coordinates, of which there are 720 orders
_ALMOST_ONE = 1 - 2**-24


class Opponent(NamedTuple):
    """Fixed player that plays a random subset, or a random coordinate of one, with probability `noise`."""

    name: str  # as in the configuration, with groups written out
    player: str  # the name without its noise
    noise: float

    def answers(self, dimension: int) -> Tensor:
        """Coordinates `[A]` that an agent answers without noise to each subset; any for a host or a random player."""
        table = subsets(dimension)
        name, _, number = self.player.partition("_")
        if name == "table":
            return choose(table, uniform(mix(torch.tensor(_TABLES_SEED), int(number)), torch.arange(len(table))))
        order = list(map(int, number)) if name == "order" else list(range(dimension))
        rank = torch.tensor([order.index(coordinate) for coordinate in range(dimension)])
        rank = -rank if self.player == "last" else rank
        return rank.expand(len(table), -1).masked_fill(~table, dimension).argmin(1)

    def name_subset(self, points: Tensor, noise: Tensor) -> Tensor:
        """Actions `[B]` of a host, see `fixed_players`. Noise that does not make the move random is stretched, so that
        it is uniform again."""
        chance = torch.tensor(self.noise)
        at_random = random_subset(points, stretched(noise, chance))
        if self.noise == 1:
            return at_random
        rest = ((noise - chance) / (1 - chance)).clamp(0, _ALMOST_ONE)
        return torch.where(noise < chance, at_random, HOSTS[self.player](points, rest))


def opponents_of(config: PointGameConfig) -> list[Opponent]:
    """Opponents that `env.opponents` names. Raises `ConfigError` for an unknown name, for a name twice and for none."""
    found: list[Opponent] = []
    for text in config.opponents:
        form = _FORM.fullmatch(text)
        name, chance = form.groups() if form else ("", None)
        names = _players_of(name, config.role, max(config.dimensions))
        if not names or (chance and name in _RANDOM):
            agents = ", ".join([*AGENTS, "orders, order_01..., tables_100, table_0"])
            known = agents if config.role == "host" else ", ".join(HOSTS)
            raise ConfigError(
                f"env.opponents={config.opponents}: {text} must be one of {known}, with env.role={config.role}; @0.2 "
                "after one that is not random lets it play at random with probability 0.2 (no 0 at the end)"
            )
        noise = float(chance or 0)
        found += [Opponent(one + text[len(name) :], one, 1.0 if one in _RANDOM else noise) for one in names]
    if not found or len(set(found)) < len(found):
        raise ConfigError(f"env.opponents={config.opponents}: must be at least one, and none twice")
    return found


def stretched(noise: Tensor, chance: Tensor) -> Tensor:
    """Noise below `chance`, made uniform in [0, 1)."""
    return (noise / chance.clamp(min=1e-9)).clamp(max=_ALMOST_ONE)


def _players_of(name: str, role: str, dimension: int) -> list[str]:
    """Players that `name` stands for; none for an unknown name."""
    if role == "agent":
        return [name] if name in HOSTS else []
    table = _TABLE.fullmatch(name)
    if table and int(table[2]) <= _MOST_TABLES:
        return [name] if table[1] == "table" else [f"table_{number}" for number in range(int(table[2]))]
    digits = "".join(map(str, range(dimension)))
    if name == "orders" and dimension <= _MOST_ORDERED:
        return [_ORDER + "".join(order) for order in permutations(digits)]
    is_order = name.startswith(_ORDER) and sorted(name.removeprefix(_ORDER)) == list(digits)
    return [name] if name in AGENTS or is_order else []
