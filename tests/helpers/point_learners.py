"""Learners of the polyhedra game at a size for tests."""

import torch

from icrl.app.compose import compose_config
from icrl.config.schedules import Clock
from icrl.extensions.point_game.players.learners import Learner, Stopwatch, make_learners
from icrl.extensions.point_game.players.options import PlayersConfig

CPU = torch.device("cpu")
START = Clock(0, 0, 0, 0)


def learners_of(*overrides: str) -> dict[str, Learner]:
    """Learners of `players=tiny` with some options set, before the first move."""
    config = compose_config(PlayersConfig, ["players=tiny", "device=cpu", *overrides])
    return make_learners(config, Stopwatch(False, CPU), CPU)[0]


def begun(role: str, *overrides: str) -> Learner:
    """Learner of one role, after its first moves."""
    learner = learners_of(*overrides)[role]
    learner.begin()
    return learner


def at(update: int, total: int) -> Clock:
    return Clock(update / total, update, 0, update)
