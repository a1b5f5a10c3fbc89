"""What to compare a policy with: exact expectations where there is a planner, and policies that learn in context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from icrl.config.env_schema import BanditConfig, PointGameConfig
from icrl.config.schedules import Clock
from icrl.contracts import Policy
from icrl.envs.core import TensorEnv
from icrl.envs.dark_room import DarkRoom
from icrl.envs.exact import Expectation, optimal_exact, random_exact
from icrl.point_game.references import fixed_players
from icrl.point_game.world import PointFamily
from icrl.sources.bandit_policies import UCB1
from icrl.sources.explorers import CoveringPlan, PersistentWalk, UniformWalk
from icrl.sources.noise_distillation import Random
from icrl.sources.searcher import in_context_learner

if TYPE_CHECKING:
    from icrl.config.root import Config

COVERING_PLAN = "covering plan"


def references_of(env: TensorEnv, config: Config) -> dict[str, Policy[Any]]:
    """The policies to play beside the model, by name. For rooms a searcher, and where one plan fits all goals the
    covering plan and walkers that remember the goal; for bandits Thompson sampling and UCB1; where there is no planner
    to tell what chance comes to, chance; in the point game the best fixed players too."""
    learner = in_context_learner(env, config.env)
    if learner and isinstance(config.env, BanditConfig):
        deviation = config.env.deviation if config.env.distribution == "gaussian" else 0.5  # of rewards from [0, 1]
        return {"Thompson sampling": learner, "UCB1": UCB1(env.spec, deviation)}
    if learner:
        return {"searcher": learner, **explorers_of(env)}
    if isinstance(env, PointFamily) and isinstance(config.env, PointGameConfig):
        return {"random": chance(env, config), **fixed_players(env, config.env)}
    return {} if env.has_planner else {"random": chance(env, config)}


def explorers_of(env: TensorEnv) -> dict[str, Policy[Any]]:
    """Policies that know all but where the goal is and forget nothing of it, for DarkRoom with one start and actions
    that are not permuted; from the one that looks for it best to the one that does so worst. None for other worlds."""
    if not isinstance(env, DarkRoom) or env.random_start or env.permute_actions:
        return {}
    return {
        COVERING_PLAN: CoveringPlan(env),
        "persistent walk with goal memory": PersistentWalk(env),
        "uniform walk with goal memory": UniformWalk(env),
    }


def exact_references(env: TensorEnv, tasks: Tensor) -> dict[str, Expectation]:
    """What chance and the best play can expect of an episode on `tasks` `[N, task_dim]`; nothing without a planner."""
    return {"random": random_exact(env, tasks), "optimum": optimal_exact(env, tasks)} if env.has_planner else {}


def chance(env: TensorEnv, config: Config) -> Policy[Any]:
    """Uniformly random play."""
    policy = Random(config.source, env.spec, torch.zeros(1, dtype=torch.long), torch.device("cpu"))
    policy.set_clock(Clock(0.0, 0, 0, 0))
    return policy
