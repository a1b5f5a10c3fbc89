"""Training that has lost its numbers: losses, gradients or parameters that are not finite.

Nothing of such a training is saved. An update is not undone: parameters follow a gradient that is not finite, and what
was saved before it stays what a run goes on from. So the same command comes to the same end.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from icrl.contracts import PipelineError
from icrl.runs.distributed import Ranks

_MOST = 32  # updates after which numbers are looked at in any case


class DivergedError(PipelineError):
    """A loss, a gradient or a parameter that is not finite."""


class Watch:
    """Numbers of updates that must be finite. They stay on their device: nothing waits for it before `first_bad`."""

    def __init__(self) -> None:
        self._noted: list[tuple[int, dict[str, Tensor]]] = []

    @property
    def is_full(self) -> bool:
        """Whether so many updates are noted that it is time for `first_bad`."""
        return len(self._noted) >= _MOST

    def note(self, update: int, values: dict[str, Tensor]) -> None:
        """Keep the `values` of an update, all of one shape, the same names each time."""
        self._noted.append((update, values))

    def first_bad(self, ranks: Ranks | None = None) -> tuple[int, dict[str, Tensor]] | None:
        """The number of the first update noted since the last call that has a value which is not finite on any of the
        `ranks`, and its bad values: where they are so, bool on the CPU, by name."""
        noted = self._noted.copy()
        self._noted.clear()
        if not noted:
            return None
        values = torch.stack([torch.stack([value.detach() for value in found.values()]) for _, found in noted])
        bad = values.isfinite().logical_not().byte().cpu()  # [U, names, ...]
        bad = torch.stack((ranks or Ranks()).gather(bad)).amax(0) > 0
        broken = bad.flatten(1).any(1)
        if not broken.any():
            return None
        first = int(broken.int().argmax())
        update, found = noted[first]
        return update, {name: where for name, where in zip(found, bad[first], strict=True) if where.any()}


def diverged(where: str, names: Iterable[str], cure: str) -> DivergedError:
    """Say `where` what is not finite, and what may help."""
    return DivergedError(
        f"{where}: {', '.join(names)} not finite. Training stops, and nothing after its last checkpoint is kept. Under "
        f"another name=, {cure} may help"
    )


def bad_rows(named: Iterable[tuple[str, Tensor]]) -> Tensor | None:
    """Which rows of parameters with a leading axis `[L, ...]` are not finite in any of them, `[L]` bool; None where
    there are no parameters."""
    bad = [~value.isfinite().flatten(1).all(1) for _, value in named]
    return torch.stack(bad).any(0) if bad else None


def are_finite(values: Iterable[Tensor]) -> bool:
    return all(bool(value.isfinite().all()) for value in values)
