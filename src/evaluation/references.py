"""What to compare a policy with: exact expectations where there is a planner, and policies that learn as well."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from src.contracts import Policy
from src.env_schema import BanditConfig
from src.envs.base import TensorEnv
from src.envs.dark_key_to_door import DarkKeyToDoor
from src.envs.dark_room import DarkRoom
from src.envs.exact import Expectation, optimal_exact, random_exact
from src.evaluation.bandit_policies import UCB1, ThompsonSampling
from src.evaluation.searchers import PermutedSearcher, Searcher
from src.schedules import Clock
from src.schema import Config
from src.sources.experts import Random


def references_of(env: TensorEnv, config: Config) -> dict[str, Policy[Any]]:
    """The policies to play beside the model, by name. For rooms a searcher, for bandits Thompson sampling and UCB1,
    which learn in context as well as one can; where there is no planner to tell what chance comes to, chance."""
    if isinstance(env, DarkRoom):
        return {"searcher": PermutedSearcher(env) if env.permute_actions else Searcher(env)}
    if isinstance(env, DarkKeyToDoor):
        return {"searcher": Searcher(env)}
    if isinstance(config.env, BanditConfig):
        gaussian = config.env.distribution == "gaussian"
        deviation = config.env.deviation if gaussian else 0.5  # of rewards from [0, 1] it is at most that
        return {
            "Thompson sampling": ThompsonSampling(env.spec, deviation if gaussian else None),
            "UCB1": UCB1(env.spec, deviation),
        }
    return {} if env.has_planner else {"random": chance(env, config)}


def exact_references(env: TensorEnv, tasks: Tensor) -> dict[str, Expectation]:
    """What chance and the best play can expect of an episode on `tasks` `[N, task_dim]`; nothing without a planner."""
    return {"random": random_exact(env, tasks), "optimum": optimal_exact(env, tasks)} if env.has_planner else {}


def optimum_of(env: TensorEnv, tasks: Tensor) -> NDArray[np.float64] | None:
    """The best return to expect of each of `tasks` `[N, task_dim]`, `[N]`; None without a planner."""
    return optimal_exact(env, tasks).episode_return.numpy() if env.has_planner else None


def chance(env: TensorEnv, config: Config) -> Policy[Any]:
    """Uniformly random play."""
    policy = Random(config.source, env.spec, torch.zeros(1, dtype=torch.long), torch.device("cpu"))
    policy.set_clock(Clock(0.0, 0, 0, 0))
    return policy
