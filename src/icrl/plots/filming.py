"""Interface of what films agents and models. An extension, or a file of the user's own, adds to `FILMING`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from icrl.contracts import Rollout
from icrl.envs.core import TensorEnv
from icrl.evaluation.setup import Setup

if TYPE_CHECKING:
    from icrl.app.root import Config


class Filming(Protocol):
    """Writer of videos. G tasks."""

    def tell(self, config: Config, env: TensorEnv) -> None:
        """Print why there will be no videos, if they are asked and the world cannot be shown."""

    def film_agents(self, config: Config, env: TensorEnv, tasks: Tensor, played: Rollout) -> None:
        """Write videos of source agents of `tasks` `[G, task_dim]`, after stage one; `played` is `[T, B]`."""

    def lives(
        self, setup: Setup, played: Mapping[str, Rollout], references: Mapping[str, Sequence[float]]
    ) -> Callable[[], object]:
        """Picklable function that writes videos of an evaluation, in which models `played`, `[T, G * S]` each by name;
        `references` are the returns `[G]` of others."""

    def guide(self, setup: Setup) -> list[str]:
        """Lines that name the video of an evaluation to look at first."""


FILMING: list[Filming] = []
