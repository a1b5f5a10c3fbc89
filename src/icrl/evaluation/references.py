"""Policies played beside the model: references, and the model without a memory of earlier episodes.

B streams, T steps in context.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from torch import Tensor

from icrl.config.modules import load_plugins
from icrl.contracts import Policy
from icrl.envs.core import TensorEnv
from icrl.envs.policies import Chance, Planner
from icrl.evaluation.measures import Exact

if TYPE_CHECKING:
    from icrl.app.root import Config

# Agents that learned all tasks at once, for tasks `[G, task_dim]`; an extension finds them.
AGENTS: list[Callable[[Config, Tensor], dict[str, Policy[Any]]]] = []
# Exact results of random and of optimal play in a world on tasks `[N, task_dim]`; an extension computes them.
EXACT: list[Callable[[TensorEnv, Tensor], Exact]] = []


@singledispatch
def searchers_in(env: Any) -> dict[str, Policy[Any]]:
    """Policies that know the rules of the world `env`, most of which learn its task in context, by name; none unless an
    extension registers a function for its class."""
    return {}


def references_of(env: TensorEnv) -> dict[str, Policy[Any]]:
    """Policies to play beside the model, by name: random play, the planner (unless both are computed), searchers."""
    load_plugins()
    searchers = searchers_in(env)
    if is_computed(env) or "random" in searchers:
        return searchers
    best = {env.best_name: Planner()} if env.has_planner else {}
    return {"random": Chance(env.spec)} | best | searchers


def is_computed(env: TensorEnv) -> bool:
    """True if there are `exact_references`."""
    load_plugins()
    return env.is_exact and bool(EXACT)


def exact_references(env: TensorEnv, tasks: Tensor) -> Exact:
    """Exact results of random and of optimal play on `tasks` `[N, task_dim]`; empty if they cannot be computed."""
    return EXACT[-1](env, tasks) if is_computed(env) else {}
