"""What all sources share: many learners side by side, and how far their run has come.

T steps, L learners, B streams or windows (learner by learner), A actions.
"""

from collections.abc import Iterator

from torch import Tensor

from icrl.config.schedules import Clock
from icrl.contracts import Rollout, Step
from icrl.randomness import draw_possible


class Learners:
    """L learners and, as a `Policy`, what they do in their B streams; the carry is empty. What follows a schedule works
    from the first `set_clock` on."""

    clock: Clock

    def __init__(self, num_learners: int) -> None:
        self.num_learners = num_learners

    def set_clock(self, clock: Clock) -> None:
        """Progress of the run, which rates are functions of."""
        self.clock = clock

    def initial_carry(self, num_streams: int) -> tuple[()]:
        """Raises `ValueError` where the streams cannot be dealt out evenly."""
        if num_streams % self.num_learners:
            raise ValueError(f"{num_streams} streams for {self.num_learners} learners")
        return ()

    def act(self, carry: tuple[()], step: Step, noise: Tensor) -> tuple[Tensor, tuple[()]]:
        """Sample from `action_probabilities` by inverting the cumulative distribution at `noise`."""
        return draw_possible(self.action_probabilities(step), noise), carry

    def action_probabilities(self, step: Step) -> Tensor:
        """What `act` samples from, `[B, A]`."""
        raise NotImplementedError

    def targets(self, rollout: Rollout) -> dict[str, Tensor]:
        """Nothing: what a transition teaches depends on what is known when it is learned from."""
        return {}

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        """None: for those that learn nothing."""
        yield from ()

    def outputs(self) -> dict[str, Tensor]:
        """What networks or tables say of every observation: where there are none, nothing."""
        return {}

    def _per_learner(self, samples: Tensor) -> Tensor:
        """Mean over each learner's samples, `[T, B] -> [L]`."""
        return samples.unflatten(1, (self.num_learners, -1)).mean(dim=(0, 2))
