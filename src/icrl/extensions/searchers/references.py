"""Searchers and explorers that play beside the model in rooms."""

from typing import Any

from icrl.envs.rooms import DarkRoom
from icrl.evaluation.protocol import COMPARED
from icrl.evaluation.references import searchers_in
from icrl.extensions.searchers.explorers import CoveringPlan, PersistentWalk, TurningWalk, UniformWalk, has_explorers
from icrl.extensions.searchers.rooms import PermutedSearcher, RoomSearcher

COVERING_PLAN = "covering plan"
WALKS = {
    "persistent walk with goal memory": PersistentWalk,
    "turning walk with goal memory": TurningWalk,
    "uniform walk with goal memory": UniformWalk,
}
COMPARED += ["persistent walk with goal memory", "turning walk with goal memory", COVERING_PLAN]


@searchers_in.register
def _(env: DarkRoom) -> dict[str, Any]:
    """The searcher; with one start and unpermuted actions also the covering plan and the walks."""
    found: dict[str, Any] = {"searcher": PermutedSearcher(env) if env.permute_actions else RoomSearcher(env)}
    if has_explorers(env):
        found |= {COVERING_PLAN: CoveringPlan(env), **{name: walk(env) for name, walk in WALKS.items()}}
    return found
