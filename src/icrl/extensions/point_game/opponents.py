"""Options of the world `point_game`, and its opponents: fixed players by name, which may play at random with some
probability. A subsets.
"""

import re
from itertools import permutations
from typing import Annotated, Literal, NamedTuple, Self

import torch
from pydantic import model_validator
from torch import Tensor

from icrl.config.options import Name, OneOrMore, option, refuse
from icrl.contracts import ConfigError
from icrl.envs.core import NAME, EnvConfig
from icrl.extensions.point_game.fixed_players import AGENTS, HOSTS, choose, random_subset
from icrl.extensions.point_game.rules import subsets
from icrl.randomness import mix, uniform

DIMENSION = 4  # coordinates of a point
NUM_POINTS = 8  # of a start
MAX_VALUE = 10  # coordinates of a start are uniform in 0 .. this
_MOST_STEPS = 25  # so that an observation fits 32 bits
_TABLES_SEED, _MOST_TABLES = 7, 10_000
_RANDOM = ("random", "random_subset")  # players that are nothing but noise
_FORM = re.compile(r"([^@]*)(?:@(1|0\.[0-9]*[1-9]))?")  # one way to write each noise
_TABLE = re.compile(r"(tables?)_(0|[1-9][0-9]{0,4})")
_ALMOST_ONE = 1 - 2**-24


class PointGameConfig(EnvConfig):
    name: Literal["point_game"] = option("point_game", NAME)
    role: Literal["host", "agent"] = option("host", "side of the learner; its opponent plays the other side")
    opponents: Annotated[list[Name], OneOrMore] = option(
        ["tables_100"],
        "fixed players, each a task. Agents: random, first, last; order_2013 (coordinate 2, else 0, else 1, else "
        "3), orders: all of them; table_0 (the same answer to the same subset), tables_100: tables 0 to 99. Or "
        "hosts. With @0.2 after its name, an opponent plays at random with probability 0.2",
    )

    former = {"dimensions": [DIMENSION], "clouds": [{"max_num_points": NUM_POINTS, "max_value": MAX_VALUE}]}

    @model_validator(mode="after")
    def _check(self) -> Self:
        steps = self.max_episode_steps
        refuse(steps > _MOST_STEPS, f"env.max_episode_steps={steps}: must be at most {_MOST_STEPS} in the point game")
        return self


class Opponent(NamedTuple):
    """Fixed player that plays a random subset, or a random coordinate of one, with probability `noise`."""

    name: str  # as in the configuration, with groups written out
    player: str  # the name without its noise
    noise: float

    def answers(self) -> Tensor:
        """Coordinates `[A]` that an agent answers without noise to each subset; any for a host or a random player."""
        table = subsets(DIMENSION)
        name, _, number = self.player.partition("_")
        if name == "table":
            return choose(table, uniform(mix(torch.tensor(_TABLES_SEED), int(number)), torch.arange(len(table))))
        order = [*map(int, number)] if name == "order" else sorted(range(DIMENSION), reverse=name == "last")
        rank = torch.tensor([order.index(coordinate) for coordinate in range(DIMENSION)])
        return rank.expand(len(table), -1).masked_fill(~table, DIMENSION).argmin(1)

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
        names = _players_of(name, config.role)
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
        raise ConfigError(f"env.opponents={config.opponents}: must have at least one name, and no duplicates")
    return found


def stretched(noise: Tensor, chance: Tensor) -> Tensor:
    """Noise below `chance`, made uniform in [0, 1)."""
    return (noise / chance.clamp(min=1e-9)).clamp(max=_ALMOST_ONE)


def _players_of(name: str, role: str) -> list[str]:
    """Players that `name` stands for; none for an unknown name."""
    if role == "agent":
        return [name] if name in HOSTS else []
    table = _TABLE.fullmatch(name)
    if table and int(table[2]) <= _MOST_TABLES:
        return [name] if table[1] == "table" else [f"table_{number}" for number in range(int(table[2]))]
    digits = "".join(map(str, range(DIMENSION)))
    if name == "orders":
        return ["order_" + "".join(order) for order in permutations(digits)]
    is_order = name.startswith("order_") and sorted(name.removeprefix("order_")) == list(digits)
    return [name] if name in AGENTS or is_order else []
