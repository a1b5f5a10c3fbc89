"""The options of the worlds: what all have, and what each adds."""

from dataclasses import dataclass
from typing import Any

from icrl.config.options import option


@dataclass
class EnvConfig:
    """What every world has; each adds its own."""

    name: str = option(
        "rules of the world; the preset `env=` sets all of this group",
        choices=("dark_room", "dark_key_to_door", "bandit", "gymnasium", "point_game"),
    )
    variant: str = option("label of the preset, used in run names")
    max_episode_steps: int = option("env steps after which an episode is truncated", low=1, high=10_000)


@dataclass
class RoomConfig(EnvConfig):
    size: int = option("side of the room in cells", low=2, high=64)
    random_start: bool = option("start each episode on a random cell instead of the centre")


@dataclass
class DarkRoomConfig(RoomConfig):
    terminate_on_goal: bool = option("reaching the goal ends the episode")
    permute_actions: bool = option("a task is a goal and what each of the five actions does")


@dataclass
class KeyToDoorConfig(RoomConfig):
    show_key: bool = option("an observation tells whether the key is held; else only the cell")


@dataclass
class BanditConfig(EnvConfig):
    num_arms: int = option("arms", low=2, high=100)
    distribution: str = option(
        "bernoulli: an arm pays 1 with its own probability; gaussian: its mean plus noise of deviation env.deviation",
        choices=("bernoulli", "gaussian"),
    )
    deviation: float = option("deviation of a gaussian arm's rewards around its mean", above=0, high=10)
    num_tasks: int = option(
        "bandits in all; arms are drawn uniformly from [0, 1], or from N(0, 1) if gaussian", low=3, high=10**6
    )
    tasks_seed: int = option("seed of the arms", low=0, high=10**9)


@dataclass
class GymnasiumConfig(EnvConfig):
    id: str = option("a registered Gymnasium environment; `module:Name-v0` imports the module first")
    tasks: list[Any] = option("arguments of `gymnasium.make`, a mapping for each task")
    reward_values: list[float] = option("every reward that there can be")
    success: str = option(
        "what makes an episode a success: reward: a positive reward; goal: an end with a positive reward; end: an end",
        choices=("reward", "goal", "end"),
    )
    width: int = option(
        "observations number the cells of a square of this side, row by row (0: of nothing)", low=0, high=1000
    )


@dataclass
class PointGameConfig(EnvConfig):
    role: str = option("whom the learner plays; its opponent plays the other side", choices=("host", "agent"))
    opponents: list[str] = option(
        "fixed players, each a task. Agents: random, first, last; order_201, which chooses coordinate 2 before 0 before"
        " 1, orders: every order; table_0, which always answers the same subset with the same coordinate, tables_100: "
        "such tables 0 to 99. Or hosts. @0.2 after one lets it play at random with probability 0.2"
    )
    dimensions: list[int] = option("coordinates of a point: each number is a task of every opponent", low=2, high=9)
    clouds: list[Any] = option(
        "where games start, a mapping with max_num_points and max_value each: so many points, uniform up to this value"
    )


ENVS: dict[str, type[EnvConfig]] = {
    "dark_room": DarkRoomConfig,
    "dark_key_to_door": KeyToDoorConfig,
    "bandit": BanditConfig,
    "gymnasium": GymnasiumConfig,
    "point_game": PointGameConfig,
}
