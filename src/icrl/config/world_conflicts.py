"""Conflicts between a world and what is to be done in it."""

from typing import TYPE_CHECKING, Any

from icrl.config.env_schema import BanditConfig, PointGameConfig

if TYPE_CHECKING:
    from icrl.config.root import Config

Conflicts = list[tuple[bool, str]]  # whether a configuration has it, and what to say then

LARGEST = 2**31 - 2  # of a coordinate, so that an observation fits 32 bits
READS_POINTS = ("a2c", "ppo", "random")  # sources that can read observations of many numbers
_CLOUD = {"max_num_points": 2, "max_value": 1}  # and the least of each
_MOST = 1000  # of both
_MOST_ARMS = 10**6  # of all bandits: with 65 rewards each, half a gigabyte


def of_bandit(config: "Config") -> Conflicts:
    """Of the table of what each arm pays, which the world holds from its start."""
    env = config.env
    if not isinstance(env, BanditConfig):
        return []
    return [
        (
            env.num_tasks * env.num_arms > _MOST_ARMS,
            f"env.num_tasks={env.num_tasks} x env.num_arms={env.num_arms} must be at most {_MOST_ARMS} arms",
        )
    ]


def of_point_game(config: "Config") -> Conflicts:
    """Of the point game, which shows point sets and no cells."""
    env, source = config.env, config.source
    if not isinstance(env, PointGameConfig):
        return []
    clouds = env.clouds
    wrong = [cloud for cloud in clouds if not _is_cloud(cloud)]
    if wrong or not clouds:
        needed = ", ".join(f"{key} >= {least}" for key, least in _CLOUD.items())
        return [(True, f"env.clouds={clouds}: must be mappings with {needed}, both ints <= {_MOST}, at least one")]
    if not env.dimensions or len(set(env.dimensions)) < len(env.dimensions):
        return [(True, f"env.dimensions={env.dimensions}: must be at least one number, and none twice")]
    return [
        (
            largest_coordinate(env) > LARGEST,
            f"env.max_episode_steps={env.max_episode_steps}: coordinates may grow to {largest_coordinate(env)}, from "
            f"env.clouds={clouds} and env.dimensions={env.dimensions}, and must be at most {LARGEST}",
        ),
        (
            source.name not in READS_POINTS,
            f"source.name={source.name} reads observations that are one number; env.name=point_game shows point sets, "
            f"which {', '.join(READS_POINTS)} read",
        ),
        *(
            (value != needed, f"{key}={value} does not go with env.name=point_game: must be {needed}, {reason}")
            for key, value, needed, reason in (
                ("source.vectorization", source.vectorization, "tensor", "the games are played side by side"),
                ("source.videos_per_task", source.videos_per_task, 0, "there is no room to film"),
                ("evaluation.videos", config.evaluation.videos, False, "there is no room to film"),
                ("model.induction", config.model.induction, False, "no position is seen twice"),
                ("objective.name", config.objective.name, "ad", "nobody knows what is optimal"),
            )
        ),
    ]


def largest_coordinate(config: PointGameConfig) -> int:
    """What no coordinate ever exceeds: with each move the sum over coordinates of their maxima at most doubles."""
    start = max(cloud["max_value"] for cloud in config.clouds) * max(config.dimensions)
    return start << config.max_episode_steps


def _is_cloud(cloud: Any) -> bool:
    return set(cloud) == set(_CLOUD) and all(
        type(cloud[key]) is int and least <= cloud[key] <= _MOST for key, least in _CLOUD.items()
    )
