"""The fixed players of the polyhedra game as policies: they read the position from what a stream shows."""

from torch import Tensor

from icrl.config.env_schema import PointGameConfig
from icrl.contracts import Step
from icrl.point_game.fixed_players import AGENTS, HOSTS
from icrl.point_game.world import PointFamily

_SHOWN = {"host": ("zeillinger", "weak_spivakovsky"), "agent": ("first", "last")}


class FixedPlayer:
    """Plays the learner's side, whoever the opponent is."""

    def __init__(self, env: PointFamily, role: str, name: str) -> None:
        self._env, self._role, self._name = env, role, name

    def initial_carry(self, num_streams: int) -> tuple[()]:
        return ()

    def act(self, carry: tuple[()], step: Step, noise: Tensor) -> tuple[Tensor, tuple[()]]:
        points, legal = self._env.points_of(step.obs), self._env.spec.legal(step.obs)
        assert legal is not None
        if self._role == "host":
            return HOSTS[self._name](points, noise), carry
        return AGENTS[self._name](points, legal, noise), carry


def fixed_players(env: PointFamily, config: PointGameConfig) -> dict[str, FixedPlayer]:
    """The best known ones by name; none where tasks differ in dimension, which hosts would have to be told."""
    if len(config.dimensions) > 1:
        return {}
    return {name.replace("_", " ").title(): FixedPlayer(env, config.role, name) for name in _SHOWN[config.role]}
