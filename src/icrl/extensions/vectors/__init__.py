"""Extension: observations that are vectors, images or several integers; actions that are vectors or several integers.
It has networks of source agents, encoders and action heads of the model, and vector worlds with hidden tasks,
which are drawn in the colours of `maps`."""

from icrl import extensions

NEEDS = ("maps",)

_ROBOT = {"name": "point_robot", "num_tasks": 100}
_PHYSICS = {"spread": 1.5, "hide_velocity": False, "num_tasks": 100}

if "as_gymnasium" in extensions.NAMES:
    from icrl.extensions.as_gymnasium import MAKES, register

    register(
        {
            "PointRobot": (MAKES, 20, {**_ROBOT, "reward": "dense"}),
            "PointRobotSparse": (MAKES, 20, {**_ROBOT, "reward": "sparse"}),
            "CartPole": (MAKES, 200, {"name": "cart_pole", **_PHYSICS}),
            "Pendulum": (MAKES, 200, {"name": "pendulum", **_PHYSICS}),
        }
    )
