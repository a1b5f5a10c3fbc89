"""Memory that training the players of the polyhedra game needs at least."""

import torch

from icrl.extensions.point_game.players.networks import PointValues, read_net_arch
from icrl.extensions.point_game.players.options import PlayersConfig
from icrl.nn.networks import parameters_of
from icrl.runs.device import Need, dtype_of

_INT = 8  # bytes


def needs(config: PlayersConfig) -> list[Need]:
    """Needs of training host and agent of the point game, and of their matches."""
    game, element, needs = config.game, dtype_of(config).itemsize, list[Need]()
    points, dimension = game.max_num_points, game.dimension
    for name in config.learning:
        role, others = config.roles[name], 0 if name == "host" else dimension
        actions = dimension if others else 2**dimension - dimension - 1
        layers, seen = read_net_arch(f"{name}.net_arch", role.net_arch), points * dimension + others
        with torch.device("meta"):
            number = sum(parameters_of(PointValues(points, dimension, others, actions, layers)))
        copies = 3 + (2 if role.optimizer == "adam" else int(role.momentum > 0))  # gradients and a target network
        copies += config.league_of(name)
        batch = role.batch_size * (2 * seen + sum(layer.width for layer in layers)) * element
        needs += [
            Need("networks and the optimizer's state", number * copies * element, (f"{name}.net_arch",)),
            Need("a batch", batch, (f"{name}.batch_size", f"{name}.net_arch")),
            Need("transitions", config.replay.size * 2 * seen * element, ("replay.size", "game.max_num_points")),
        ]
    option = max("num_games", "num_final_games", key=lambda option: getattr(config.evaluation, option))
    size = getattr(config.evaluation, option) * points * dimension * _INT
    return [*needs, Need("the positions of a match", size, (f"evaluation.{option}", "game.max_num_points"))]
