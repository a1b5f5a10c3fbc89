"""Learners of the polyhedra game at a size for tests, and short runs of them."""

from pathlib import Path

import torch

from icrl.app.compose import compose_config
from icrl.config.schedules import Clock
from icrl.extensions.point_game.players.learners import Learner, make_learners
from icrl.extensions.point_game.players.options import PlayersConfig
from icrl.extensions.point_game.programs import train_players

CPU = torch.device("cpu")
START = Clock(0, 0, 0, 0)


def learners_of(*overrides: str) -> dict[str, Learner]:
    """Learners of `players=tiny` with some options set, before the first move."""
    config = compose_config(PlayersConfig, ["players=tiny", "device=cpu", *overrides])
    return make_learners(config, CPU)[0]


def begun(role: str, *overrides: str) -> Learner:
    """Learner of one role, after its first moves."""
    learner = learners_of(*overrides)[role]
    learner.begin()
    return learner


def at(update: int, total: int) -> Clock:
    return Clock(update / total, update, 0, update)


def run(root: Path, *options: str) -> Path:
    """Folder of a run of `train_players` with 12 updates."""
    shared = ("players=tiny", "device=cpu", "evaluation.pictures=false", "evaluation.max_moves=3")
    return train_players.main(compose_config(PlayersConfig, [*shared, f"root={root}", *options]))
