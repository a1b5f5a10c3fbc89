"""Names under which Gymnasium knows our worlds. Importing this module is light: a world is imported when it is made."""

from typing import Any

import gymnasium

_ROOM = {"name": "dark_room", "size": 9, "random_start": False, "terminate_on_goal": True, "permute_actions": False}
_BANDIT = {"name": "bandit", "num_arms": 10, "deviation": 0.5, "num_tasks": 1100, "tasks_seed": 0}
_BANDIT |= {"num_contexts": 1, "num_features": 0}
_MDPS = {"num_states": 16, "num_actions": 4, "num_tasks": 1100, "tasks_seed": 0}
_LINE = {"leap": 3, "fall": 2, "deviation": 0.25, "pitfall_share": 0.15}
_DRAWN = {"num_tasks": 100, "tasks_seed": 0}
_ROBOT = {"name": "point_robot", "goals": "semicircle", **_DRAWN}
_PHYSICS = {"spread": 1.5, "flip": True, "hide_velocity": False, **_DRAWN}
_OURS = "icrl.envs.gym.as_gymnasium"

Ids = dict[str, tuple[str, int, dict[str, Any]]]
# Module, steps of an episode, and options of the world; every option is a keyword argument of `gymnasium.make`.
_IDS: Ids = {
    "DarkRoom": (_OURS, 20, _ROOM),
    "DarkRoomClassic": (_OURS, 20, {**_ROOM, "terminate_on_goal": False}),
    "DarkRoomHard": (_OURS, 20, {**_ROOM, "size": 17}),
    "DarkRoomPermuted": (_OURS, 20, {**_ROOM, "permute_actions": True}),
    "DarkKeyToDoor": (_OURS, 50, {"name": "dark_key_to_door", "size": 9, "random_start": True, "show_key": False}),
    "Bandit": (_OURS, 1, {**_BANDIT, "distribution": "bernoulli"}),
    "BanditGaussian": (_OURS, 1, {**_BANDIT, "distribution": "gaussian"}),
    "BanditLinear": (_OURS, 1, {**_BANDIT, "distribution": "gaussian", "num_features": 2}),
    "BanditContextual": (_OURS, 1, {**_BANDIT, "distribution": "bernoulli", "num_arms": 5, "num_contexts": 4}),
    "Garnet": (_OURS, 20, {"name": "garnet", "branching": 2, "reward_share": 0.1, **_MDPS}),
    "AnyMDP": (_OURS, 20, {"name": "anymdp", **_LINE, **_MDPS}),
    "PointRobot": (_OURS, 20, {**_ROBOT, "reward": "dense"}),
    "PointRobotSparse": (_OURS, 20, {**_ROBOT, "reward": "sparse"}),
    "CartPole": (_OURS, 200, {"name": "cart_pole", **_PHYSICS}),
    "Pendulum": (_OURS, 200, {"name": "pendulum", **_PHYSICS}),
}


def register(ids: Ids) -> None:
    """Make worlds known to `gymnasium.make` and `gymnasium.make_vec`.

    The time limit belongs to Gymnasium's spec and is not an argument here. `make` wraps the single environment, which
    then has no clock of its own, in `TimeLimit`; `make_vec` passes the limit to the batched environment, which counts
    itself. So exactly one clock runs, and `make(..., max_episode_steps=n)` means n, even above the registered limit."""
    for name, (module, limit, options) in ids.items():
        points = {"entry_point": f"{module}:make_single", "vector_entry_point": f"{module}:make_batched"}
        gymnasium.register(f"icrl/{name}-v0", max_episode_steps=limit, kwargs=options, **points)


def register_all() -> None:
    """Register the worlds of the core."""
    register(_IDS)
    for name in ("HalfCheetahVel", "AntDir"):
        gymnasium.register(f"icrl/{name}-v0", f"icrl.envs.gym.locomotion:{name}", max_episode_steps=200)
    for name in ("reach-v3", "push-v3", "pick-place-v3"):
        ml1 = {"max_episode_steps": 500, "kwargs": {"env_name": name}}
        gymnasium.register(f"icrl/ML1-{name}", "icrl.envs.gym.meta_world:ML1", **ml1)
