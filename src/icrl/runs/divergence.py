"""Divergence: losses, gradients or parameters that are not finite.

Such a state is never saved. The run resumes from the checkpoint before it, so the same command fails in the same way.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from icrl.contracts import PipelineError
from icrl.runs.distributed import Ranks

_MOST = 32  # updates between two checks at most


class DivergedError(PipelineError):
    """A loss, a gradient or a parameter is not finite."""


class Watch:
    """Buffer of values that must be finite. They stay on the device, so only `first_bad` waits for it."""

    def __init__(self, ranks: Ranks | None = None) -> None:
        self._noted: list[tuple[int, dict[str, Tensor]]] = []
        self._ranks = ranks or Ranks()

    def record(self, update: int, values: dict[str, Tensor]) -> None:
        """Keep the `values` of an update: all of one shape, with the same names each time; of none, nothing is kept."""
        if values:
            self._noted.append((update, values))

    def first_bad(self) -> tuple[int, dict[str, Tensor]] | None:
        """First update since the last call with a bad value on any rank, and masks of these by name, on the CPU."""
        noted = self._noted.copy()
        self._noted.clear()
        if not noted:
            return None
        values = torch.stack([torch.stack([value.detach() for value in found.values()]) for _, found in noted])
        bad = values.isfinite().logical_not().byte().cpu()  # [U, names, ...]
        bad = torch.stack(self._ranks.gather(bad)).amax(0) > 0
        broken = bad.flatten(1).any(1)
        if not broken.any():
            return None
        first = int(broken.int().argmax())
        update, found = noted[first]
        return update, {name: where for name, where in zip(found, bad[first], strict=True) if where.any()}


class FiniteCheck(Watch):
    """Check of a training loop: raises `DivergedError`, on all ranks, if values or parameters are not finite."""

    def __init__(
        self, program: str, networks: dict[str, nn.Module], advice: Callable[[str], str], ranks: Ranks | None = None
    ) -> None:
        """`networks` by the word that names their parameters in messages; `advice` takes the first bad name."""
        super().__init__(ranks)
        self._program, self._networks, self._advice = program, networks, advice

    def record(self, update: int, values: dict[str, Tensor], check: bool = False) -> None:
        """Keep the `values` of an update; they are checked every few updates, or immediately with `check`."""
        super().record(update, values)
        if check or len(self._noted) >= _MOST:
            self.check()

    def check(self, update: int | None = None) -> None:
        """Check the updates, and the parameters after `update` if it is given."""
        when, bad_update = "in", self.first_bad()
        if not bad_update and update is not None:
            networks = [(f"{name} parameters".strip(), network) for name, network in self._networks.items()]
            bad = [name for name, network in networks if not all(p.isfinite().all() for p in network.parameters())]
            if self._ranks.any(bool(bad)):
                when, bad_update = "after", (update, bad or ["parameters"])
        if bad_update:
            at, names = bad_update
            raise diverged(f"{self._program}, {when} update {at}", names, self._advice(next(iter(names))))


def diverged(where: str, names: Iterable[str], advice: str) -> DivergedError:
    """Error that says what is not finite, `where`, and what may help."""
    return DivergedError(
        f"{where}: {', '.join(names)} not finite. Training stops, and nothing after its last checkpoint is kept. Under "
        f"another name=, {advice} may help"
    )


def bad_rows(named: Iterable[tuple[str, Tensor]]) -> Tensor | None:
    """Rows of parameters `[L, ...]` that are not finite in any of them, `[L]` bool; None if there are no parameters."""
    bad = [~value.isfinite().reshape(len(value), -1).all(1) for _, value in named]
    return torch.stack(bad).any(0) if bad else None
