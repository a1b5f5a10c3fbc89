"""The options of the worlds: what all have, and what each adds."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from icrl.config.options import EnvId, Name, OneOrMore, Options, option, refuse

LARGEST_COORDINATE = 2**31 - 2  # of the point game, so that an observation fits 32 bits
_CLOUD = {"max_num_points": 2, "max_value": 1}  # keys of a cloud of points, and the least of each
_MOST = 1000  # of both
_MOST_ARMS = 10**6  # of all bandits: with 65 rewards each, half a gigabyte
_NAME = "rules of the world; the preset `env=` sets all of this group"


class EnvConfig(Options):
    """What every world has; each adds its own."""

    name: str = option("", _NAME)
    variant: Name = option("dark_room", "label of the preset, used in run names")
    max_episode_steps: int = option(20, "env steps after which an episode is truncated", ge=1, le=10000)


class RoomConfig(EnvConfig):
    size: int = option(9, "side of the room in cells", ge=2, le=64)
    random_start: bool = option(False, "start each episode on a random cell instead of the centre")


class DarkRoomConfig(RoomConfig):
    name: Literal["dark_room"] = option("dark_room", _NAME)
    terminate_on_goal: bool = option(True, "reaching the goal ends the episode")
    permute_actions: bool = option(False, "a task is a goal and what each of the five actions does")


class KeyToDoorConfig(RoomConfig):
    name: Literal["dark_key_to_door"] = option("dark_key_to_door", _NAME)
    show_key: bool = option(True, "an observation tells whether the key is held; else only the cell")


class BanditConfig(EnvConfig):
    name: Literal["bandit"] = option("bandit", _NAME)
    num_arms: int = option(10, "arms", ge=2, le=100)
    distribution: Literal["bernoulli", "gaussian"] = option(
        "bernoulli",
        "bernoulli: an arm pays 1 with its own probability; gaussian: its mean plus noise of deviation env.deviation",
    )
    deviation: float = option(0.5, "deviation of a gaussian arm's rewards around its mean", gt=0, le=10)
    num_tasks: int = option(
        1100, "bandits in all; arms are drawn uniformly from [0, 1], or from N(0, 1) if gaussian", ge=3, le=10**6
    )
    tasks_seed: int = option(0, "seed of the arms", ge=0, le=10**9)

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(
            self.num_tasks * self.num_arms > _MOST_ARMS,
            f"env.num_tasks={self.num_tasks} x env.num_arms={self.num_arms} must be at most {_MOST_ARMS} arms",
        )
        return self


class GymnasiumConfig(EnvConfig):
    name: Literal["gymnasium"] = option("gymnasium", _NAME)
    id: EnvId = option("FrozenLake-v1", "a registered Gymnasium environment; `module:Name-v0` imports the module first")
    tasks: list[dict[str, Any]] = option(
        [],
        "arguments of `gymnasium.make`, a mapping for each task",
    )
    reward_values: list[float] = option([0.0, 1.0], "every reward that there can be")
    success: Literal["reward", "goal", "end"] = option(
        "goal",
        "what makes an episode a success: reward: a positive reward; goal: an end with a positive reward; end: an end",
    )
    width: int = option(
        4, "observations number the cells of a square of this side, row by row (0: of nothing)", ge=0, le=1000
    )


class PointGameConfig(EnvConfig):
    name: Literal["point_game"] = option("point_game", _NAME)
    role: Literal["host", "agent"] = option("host", "whom the learner plays; its opponent plays the other side")
    opponents: Annotated[list[Name], OneOrMore] = option(
        ["tables_100"],
        "fixed players, each a task. Agents: random, first, last; order_201, which chooses coordinate 2 before 0 before"
        " 1, orders: every order; table_0, which always answers the same subset with the same coordinate, tables_100: "
        "such tables 0 to 99. Or hosts. @0.2 after one lets it play at random with probability 0.2",
    )
    dimensions: Annotated[list[Annotated[int, Field(ge=2, le=9)]], OneOrMore] = option(
        [4], "coordinates of a point: each number is a task of every opponent"
    )
    clouds: list[dict[str, Any]] = option(
        [{"max_num_points": 8, "max_value": 10}],
        "where games start, a mapping with max_num_points and max_value each: so many points, uniform up to this value",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        needed = ", ".join(f"{key} >= {least}" for key, least in _CLOUD.items())
        refuse(
            not self.clouds or not all(map(_is_cloud, self.clouds)),
            f"env.clouds={self.clouds}: must be mappings with {needed}, both ints <= {_MOST}, at least one",
        )
        refuse(
            not self.dimensions or len(set(self.dimensions)) < len(self.dimensions),
            f"env.dimensions={self.dimensions}: must be at least one number, and none twice",
        )
        refuse(
            self.largest_coordinate > LARGEST_COORDINATE,
            f"env.max_episode_steps={self.max_episode_steps}: coordinates may grow to {self.largest_coordinate}, from "
            f"env.clouds={self.clouds} and env.dimensions={self.dimensions}, and must be at most {LARGEST_COORDINATE}",
        )
        return self

    @property
    def largest_coordinate(self) -> int:
        """Bound of all coordinates: each move at most doubles the sum over coordinates of their maxima."""
        start = max(cloud["max_value"] for cloud in self.clouds) * max(self.dimensions)
        return start << self.max_episode_steps


def _is_cloud(cloud: Any) -> bool:
    return set(cloud) == set(_CLOUD) and all(
        type(cloud[key]) is int and least <= cloud[key] <= _MOST for key, least in _CLOUD.items()
    )


ENVS: dict[str, type[EnvConfig]] = {
    kind.model_fields["name"].default: kind
    for kind in (DarkRoomConfig, KeyToDoorConfig, BanditConfig, GymnasiumConfig, PointGameConfig)
}
