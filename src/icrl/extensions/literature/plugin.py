"""The worlds of this extension, and what learns in them."""

from icrl.extensions.literature import dirichlet_mdps, treasure_rooms

__all__ = ["dirichlet_mdps", "treasure_rooms"]
