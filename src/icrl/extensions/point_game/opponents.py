"""Options of the world `point_game`, and its opponents: fixed players by name. A subsets."""

import re
from itertools import permutations
from typing import Annotated, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor

from icrl.config.options import Name, OneOrMore, option, refuse
from icrl.envs.core import NAME, EnvConfig
from icrl.extensions.point_game.fixed_players import AGENTS, HOSTS, choose
from icrl.extensions.point_game.rules import subsets
from icrl.randomness import mix, uniform

DIMENSION = 4  # coordinates of a point
NUM_POINTS = 8  # of a start
MAX_VALUE = 10  # coordinates of a start are uniform in 0 .. this
_MOST_STEPS = 25  # so that an observation fits 32 bits
_TABLES_SEED, _MOST_TABLES = 7, 10_000
RANDOM = ("random", "random_subset")  # players that are nothing but noise
_TABLE = re.compile(r"(tables?)_(0|[1-9][0-9]{0,4})")


class PointGameConfig(EnvConfig):
    name: Literal["point_game"] = option("point_game", NAME)
    role: Literal["host", "agent"] = option("host", "side of the learner; its opponent plays the other side")
    opponents: Annotated[list[Name], OneOrMore] = option(
        ["tables_100"],
        "fixed players, each a task. Agents: random, first, last; order_2013 (coordinate 2, else 0, else 1, else "
        "3), orders: all of them; table_0 (the same answer to the same subset), tables_100: tables 0 to 99. Or "
        "hosts",
    )

    former = {"dimensions": [DIMENSION], "clouds": [{"max_num_points": NUM_POINTS, "max_value": MAX_VALUE}]}

    @model_validator(mode="after")
    def _check(self) -> Self:
        steps = self.max_episode_steps
        refuse(steps > _MOST_STEPS, f"env.max_episode_steps={steps}: must be at most {_MOST_STEPS} in the point game")
        return self


def answers_of(player: str) -> Tensor:
    """Coordinates `[A]` that an agent answers to each subset; any for a host or a random player."""
    table = subsets(DIMENSION)
    name, _, number = player.partition("_")
    if name == "table":
        return choose(table, uniform(mix(torch.tensor(_TABLES_SEED), int(number)), torch.arange(len(table))))
    order = [*map(int, number)] if name == "order" else sorted(range(DIMENSION), reverse=name == "last")
    rank = torch.tensor([order.index(coordinate) for coordinate in range(DIMENSION)])
    return rank.expand(len(table), -1).masked_fill(~table, DIMENSION).argmin(1)


def opponents_of(config: PointGameConfig) -> list[str]:
    """Players that `env.opponents` names. Raises `ConfigError` for an unknown name, for a name twice and for none."""
    found: list[str] = []
    for name in config.opponents:
        names = _players_of(name, config.role)
        agents = ", ".join([*AGENTS, "orders, order_01..., tables_100, table_0"])
        known = agents if config.role == "host" else ", ".join(HOSTS)
        must = f"{name} must be one of {known}, with env.role={config.role}"
        refuse(not names, f"env.opponents={config.opponents}: {must}")
        found += names
    unlike = not found or len(set(found)) < len(found)
    refuse(unlike, f"env.opponents={config.opponents}: must have at least one name, and no duplicates")
    return found


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
