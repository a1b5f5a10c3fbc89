"""References for comparison: exact expectations, policies that learn in context, and coverage without a goal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from icrl.config.schedules import Clock
from icrl.contracts import Policy
from icrl.envs.bandit import BanditConfig
from icrl.envs.core import TensorEnv
from icrl.envs.exact import Expectation, optimal_exact, random_exact
from icrl.envs.rooms import DarkRoom
from icrl.evaluation.in_context import play_steps
from icrl.point_game.world import PointFamily, PointGameConfig, fixed_players
from icrl.rl.statistics import Floats
from icrl.sources.bandit_policies import UCB1
from icrl.sources.explorers import CoveringPlan, PersistentWalk, UniformWalk
from icrl.sources.noise_distillation import Random
from icrl.sources.searcher import in_context_learner

if TYPE_CHECKING:
    from icrl.config.root import Config

COVERING_PLAN = "covering plan"
NUM_EPISODES = 6  # of coverage


def references_of(env: TensorEnv, config: Config) -> dict[str, Policy[Any]]:
    """Policies to play beside the model, by name.

    Rooms: a searcher and, with one start and unpermuted actions, the covering plan and two walkers with a perfect goal
    memory. Bandits: Thompson sampling and UCB1. Point game: random and the best fixed players. Other worlds without a
    planner: random."""
    learner = in_context_learner(env, config.env)
    if learner and isinstance(config.env, BanditConfig):
        deviation = config.env.deviation if config.env.distribution == "gaussian" else 0.5  # of rewards in [0, 1]
        return {"Thompson sampling": learner, "UCB1": UCB1(env.spec, deviation)}
    if learner and isinstance(env, DarkRoom) and not (env.random_start or env.permute_actions):
        walks = {"persistent": PersistentWalk(env), "uniform": UniformWalk(env)}
        named = {f"{name} walk with goal memory": walk for name, walk in walks.items()}
        return {"searcher": learner, COVERING_PLAN: CoveringPlan(env), **named}
    if learner:
        return {"searcher": learner}
    if isinstance(env, PointFamily) and isinstance(config.env, PointGameConfig):
        return {"random": chance(env, config), **fixed_players(env, config.env)}
    return {} if env.has_planner else {"random": chance(env, config)}


def exact_references(env: TensorEnv, tasks: Tensor) -> dict[str, Expectation]:
    """Exact expectations of random and of optimal play on `tasks` `[N, task_dim]`; empty without a planner."""
    return {"random": random_exact(env, tasks), "optimum": optimal_exact(env, tasks)} if env.has_planner else {}


def chance(env: TensorEnv, config: Config) -> Policy[Any]:
    """Uniformly random play."""
    policy = Random(config.source, env.spec, torch.zeros(1, dtype=torch.long), torch.device("cpu"))
    policy.set_clock(Clock(0.0, 0, 0, 0))
    return policy


def coverage_of(policies: Mapping[str, Policy[Any]], env: DarkRoom, num_streams: int, seed: int) -> dict[str, Floats]:
    """Coverage `[1, S, E]` of each policy in a room without a goal.

    It is the share of the possible goal cells that each of S streams has visited by the end of each of its first
    `NUM_EPISODES` = E episodes. A visit is a move that ends on the cell, which is what shows a goal."""
    cells = env.all_tasks().unique()
    nowhere = torch.full((1, 1), env.size**2, device=cells.device)
    found: dict[str, Floats] = {}
    for name, policy in policies.items():
        steps = play_steps(policy, env, nowhere, num_streams, NUM_EPISODES * env.spec.max_episode_steps, seed)
        visited = torch.zeros(NUM_EPISODES, num_streams, env.size**2, dtype=torch.bool, device=cells.device)
        by_episode = steps.next_obs.view(NUM_EPISODES, -1, num_streams).transpose(1, 2)  # only the clock ends them
        seen = visited.scatter_(2, by_episode, True).cumsum(0)[..., cells] > 0
        found[name] = seen.double().mean(2).T.cpu().numpy()[None]
    return found
