"""The worlds of this extension, and what learns in them."""

from icrl.extensions.worlds import bandit, indices, key_to_door, learners, random_mdps

__all__ = ["bandit", "indices", "key_to_door", "learners", "random_mdps"]
