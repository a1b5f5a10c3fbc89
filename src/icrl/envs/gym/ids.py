"""The names under which Gymnasium knows the worlds."""

from typing import Any

import gymnasium

_ROOM = {"name": "dark_room", "size": 9, "random_start": False, "terminate_on_goal": True, "permute_actions": False}
_BANDIT = {"name": "bandit", "num_arms": 10, "deviation": 0.5, "num_tasks": 1100, "tasks_seed": 0}

# Steps of an episode and the options of the world; every option is a keyword argument of `make`.
_IDS: dict[str, tuple[int, dict[str, Any]]] = {
    "icrl/DarkRoom-v0": (20, _ROOM),
    "icrl/DarkRoomClassic-v0": (20, {**_ROOM, "terminate_on_goal": False}),
    "icrl/DarkRoomHard-v0": (20, {**_ROOM, "size": 17}),
    "icrl/DarkRoomPermuted-v0": (20, {**_ROOM, "permute_actions": True}),
    "icrl/DarkKeyToDoor-v0": (50, {"name": "dark_key_to_door", "size": 9, "random_start": True, "show_key": False}),
    "icrl/Bandit-v0": (1, {**_BANDIT, "distribution": "bernoulli"}),
    "icrl/BanditGaussian-v0": (1, {**_BANDIT, "distribution": "gaussian"}),
}

_POINTS = {"dimension": 3, "max_num_points": 20, "max_value": 20, "reposition": False, "scale_observation": True}
_POINT_GAMES: dict[str, dict[str, Any]] = {
    "icrl/PointGameHost-v0": {"role": "host", "opponent": "random", **_POINTS},
    "icrl/PointGameAgent-v0": {"role": "agent", "opponent": "zeillinger", **_POINTS},
}
_POINT_GAME_STEPS = 100


def register_all() -> None:
    """Make every world known to `gymnasium.make` and `gymnasium.make_vec`.

    The time limit is Gymnasium's part of the spec and no argument: `make` wraps the single environment, which has no
    clock of its own then, in `TimeLimit`, and `make_vec` hands it to the batched one, which counts itself. So exactly
    one clock runs, and `make(..., max_episode_steps=n)` means n, even where n is more than is registered."""
    for env_id, (max_episode_steps, options) in _IDS.items():
        _register(env_id, "icrl.envs.gym.face", max_episode_steps, options)
    for env_id, options in _POINT_GAMES.items():
        _register(env_id, "icrl.point_game.gymnasium", _POINT_GAME_STEPS, options)


def _register(env_id: str, module: str, max_episode_steps: int, options: dict[str, Any]) -> None:
    gymnasium.register(
        env_id,
        entry_point=f"{module}:make_single",
        vector_entry_point=f"{module}:make_batched",
        max_episode_steps=max_episode_steps,
        kwargs=options,
    )
