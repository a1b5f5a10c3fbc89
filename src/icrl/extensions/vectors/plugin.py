"""The networks and worlds of this extension."""

from icrl.extensions.vectors import actions, control, encoders, heads, point_robot

__all__ = ["actions", "control", "encoders", "heads", "point_robot"]
