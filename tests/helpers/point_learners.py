"""Learners of the polyhedra game at a size for tests."""

import torch

from icrl.config.compose import load_players_config
from icrl.config.schedules import Clock
from icrl.point_game.learners import Learner, Stopwatch, make_learners

CPU = torch.device("cpu")
START = Clock(0, 0, 0, 0)


def learners_of(*overrides: str) -> dict[str, Learner]:
    """Learners of `players=tiny` with some options set, before the first move."""
    config = load_players_config(["players=tiny", "device=cpu", *overrides])
    return make_learners(config, Stopwatch(False, CPU), CPU)[0]


def begun(role: str, *overrides: str) -> Learner:
    """Learner of one role, after its first moves."""
    learner = learners_of(*overrides)[role]
    learner.begin()
    return learner


def at(update: int, total: int) -> Clock:
    return Clock(update / total, update, 0, update)
