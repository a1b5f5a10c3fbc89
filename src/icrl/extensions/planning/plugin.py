"""Registration of the head, the objective, and the policy that plans."""

from icrl.extensions.planning import planner
from icrl.extensions.planning.world_model import PlanningHead
from icrl.nn.heads import HEADS

__all__ = ["planner"]

HEADS["planning"] = PlanningHead
