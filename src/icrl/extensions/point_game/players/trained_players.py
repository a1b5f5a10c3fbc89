"""Players of the polyhedra game with a network of action values: of a learner, and saved by a run of `train_players`.

A saved player is named by the folder of its run, `logs/NAME`: its last network. `logs/NAME@best` is the best one by
matches, `logs/NAME@400` the snapshot of update 400 (`checkpoints.snapshot_interval`). It plays in games of its own
dimension, with at most as many points as it was trained with.

B games, N rows for points, n coordinates, A actions, D numbers in an observation.
"""

import re
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from icrl.config.modules import recorded_options
from icrl.config.options import refuse
from icrl.contracts import Json
from icrl.extensions.point_game.fixed_players import choose
from icrl.extensions.point_game.players.networks import PointValues, read_net_arch
from icrl.extensions.point_game.players.options import LEARNED, OTHER, SAVED, PlayersConfig
from icrl.extensions.point_game.rules import PADDING, canonical, reposition, rescale, subsets
from icrl.randomness import mix
from icrl.runs import checkpoint
from icrl.runs.device import dtype_of
from icrl.runs.files import PROJECT, read_owned

_LARGEST_NOISE = 1 - 2**-24  # of the numbers that players are given

Player = Callable[..., Tensor]  # a `Host` or an `Agent`


class NetworkPlayer:
    """Host or agent with a network in evaluation mode; its first parameters are a function of `seed` and its side."""

    def __init__(self, side: str, config: PlayersConfig, device: torch.device) -> None:
        self._is_host, self._game, self._device, self._dtype = side == "host", config.game, device, dtype_of(config)
        self._key = mix(torch.tensor(config.seed, device=device), 0 if self._is_host else 1)  # other numbers for each
        rows, dimension = self._game.max_num_points, self._game.dimension
        self.num_actions = len(subsets(dimension)) if self._is_host else dimension
        num_others = 0 if self._is_host else dimension  # numbers in an observation after those of the points
        self.num_inputs = rows * dimension + num_others  # D
        layers = read_net_arch(f"{side}.net_arch", config.roles[side].net_arch)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(self._key))
            network = PointValues(rows, dimension, num_others, self.num_actions, layers)
            self.network = network.to(device, self._dtype).eval()

    def player(self, epsilon: float = 0.0) -> Player:
        """Player that takes the best action of the current network, or with probability `epsilon` any legal one."""

        @torch.no_grad()
        def act(*seen: Tensor) -> Tensor:
            values, noise = self._legal_values(self._see(*seen[:-1])), seen[-1]
            share = noise.to(values.device).double()
            again = (share / max(epsilon, 2**-24)).clamp(max=_LARGEST_NOISE)  # uniform where the share is below epsilon
            return torch.where(share < epsilon, choose(values.isfinite(), again), values.argmax(1)).to(noise.device)

        return act

    def _see(self, points: Tensor, *coords: Tensor) -> Tensor:
        """Observations `[B, D]` of positions `[B, N, n]` and, for the agent, the host's subsets `[B, n]` as 0 or 1: the
        same for any order of the points, and with `game.reposition` for any translation. Missing rows are padding."""
        points = canonical(points.to(self._device))
        points = reposition(points) if self._game.reposition else points
        numbers = (rescale(points) if self._game.scale_observation else points).to(self._dtype)
        numbers = F.pad(numbers, (0, 0, 0, self._game.max_num_points - numbers.shape[1]), value=PADDING).flatten(1)
        return torch.cat([numbers, *(flags.to(self._device, self._dtype) for flags in coords)], 1)

    def _legal_values(self, observation: Tensor) -> Tensor:
        """Values of all actions, `[B, A]`; minus infinity for illegal ones, and for these alone."""
        values = self.network(observation).nan_to_num()
        return values if self._is_host else values.masked_fill(observation[:, -self.num_actions :] <= 0, -torch.inf)


def load_player(
    name: str, side: str, dimension: int, max_num_points: int, device: torch.device, root: Path | None = None
) -> NetworkPlayer:
    """The saved player `name` of a `side`, for games of this size; relative names are below `root`, or else the current
    folder. Raises `ConfigError` if there is none or the game does not fit."""
    state, about = checkpoint.load(_sidecar(name, side, root or Path()), device)
    config = _recorded(name, about)
    for option, size, fits in (
        ("dimension", dimension, dimension == config.game.dimension),
        ("max_num_points", max_num_points, max_num_points <= config.game.max_num_points),
    ):
        trained = getattr(config.game, option)
        refuse(not fits, f"{option}={size}: the {side} of {name} was trained with {option}={trained}; give that")
    player = NetworkPlayer(side, config, device)
    player.network.load_state_dict(state[side]["network"])
    return player


def load_for(config: PlayersConfig, name: str, side: str, device: torch.device) -> NetworkPlayer:
    """The saved player `name` of a `side`, for the games of `config`."""
    return load_player(name, side, config.game.dimension, config.game.max_num_points, device, PROJECT / config.root)


def saved_inputs(config: PlayersConfig) -> Json:
    """Checksums of the checkpoints that a run depends on, by side and name."""
    found: Json = {}
    for side, role in config.roles.items():
        named = [(side, role.player)]
        if side in config.learning:
            named = [(OTHER[side], name) for name in role.opponents]
        for of_side, name in named:
            if re.match(SAVED, name):
                sidecar = _sidecar(name, of_side, PROJECT / config.root)
                found[f"{of_side} {name}"] = checkpoint.check(sidecar)["state_sha256"]
    return found


def _recorded(name: str, about: Json) -> PlayersConfig:
    """Options of the run of the saved player `name`, whose checkpoint has the sidecar `about`."""
    return recorded_options(PlayersConfig, about["description"].get("config"), name)


def _sidecar(name: str, side: str, root: Path) -> Path:
    """Sidecar of the checkpoint that a saved player's `name` stands for."""
    folder, _, which = name.partition("@")
    folder = root / folder / "players"
    kind = {"": "last", "last": "last", "best": f"best_{side}"}.get(which, "snapshot")
    found = checkpoint.sidecars(folder, kind)
    if kind == "snapshot":
        there = ", ".join(str(checkpoint.saved_step(sidecar)) for sidecar in reversed(found)) or "none"
        found = [sidecar for sidecar in found if checkpoint.saved_step(sidecar) == int(which)]
        refuse(not found, f"{name}: there is no snapshot of this update in {folder}, which has {there}")
    there = found and (kind == "snapshot" or (folder / checkpoint.FINISHED).exists())
    trained = there and getattr(_recorded(name, checkpoint.check(found[0])), side).player == LEARNED
    refuse(not trained, f"{name}: there is no finished run of train_players in {folder} that trained its {side}")
    if kind == "last":
        finished = folder / checkpoint.FINISHED
        checkpoint.check_end(finished, read_owned(finished, {})[2], checkpoint.saved_step(found[0]))
    return found[0]
