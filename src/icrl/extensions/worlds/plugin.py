"""The worlds of this extension, and what learns in them."""

from icrl.extensions.worlds import bandit, control, key_to_door, learners, point_robot, random_mdps

__all__ = ["bandit", "control", "key_to_door", "learners", "point_robot", "random_mdps"]
