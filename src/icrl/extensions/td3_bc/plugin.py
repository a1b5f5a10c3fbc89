"""Registration of the objective, the policy and the program."""

from icrl.extensions.td3_bc import objective
from icrl.extensions.td3_bc.acting import actor_kind
from icrl.runs import SHARED

__all__ = ["actor_kind", "objective"]

SHARED.add("train_td3_bc")
