"""Columns of histories: what is recorded of a step, the transitions made of it, and reading a batch from disk."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from icrl.contracts import PipelineError, Rollout
from icrl.runs.files import reserve
from icrl.spaces import EnvSpec

Floats, Integers, Booleans = NDArray[np.float32], NDArray[np.integer], NDArray[np.bool_]
_CHUNK = 2**27  # bytes that are in memory at a time when all of a store are read
# Called with the columns and the numbers of their steps `[B, T]` that a batch is about to read; extensions add some.
BEFORE_READS: list[Callable[[Sequence[tuple[np.ndarray, np.ndarray]]], object]] = []

OBSERVATIONS, ACTIONS = ("obs", "next_obs"), ("action", "optimal_action")


def step_dtypes(spec: EnvSpec) -> dict[str, torch.dtype]:
    """dtype of each column of a `Rollout` while it is played."""
    dtypes = dict.fromkeys(Rollout._fields, torch.int64)
    dtypes |= dict.fromkeys(OBSERVATIONS, spec.obs_dtype) | dict.fromkeys(ACTIONS, spec.action_dtype)
    return dtypes | {"reward": torch.float32, "terminated": torch.bool, "truncated": torch.bool}


def column_forms(spec: EnvSpec) -> dict[str, tuple[str, tuple[int, ...]]]:
    """dtype and shape of a step in each recorded column: those of its space, and for integers the smallest dtype that
    holds them. Rewards are indices into the spec's reward values, or float32 if it does not list them."""
    dtypes = {name: str(dtype).removeprefix("torch.") for name, dtype in step_dtypes(spec).items()}
    shapes = dict.fromkeys(OBSERVATIONS, spec.obs_shape) | dict.fromkeys(ACTIONS, spec.action_shape)
    counts = {"timestep": spec.max_episode_steps, "terminated": 2, "truncated": 2}  # of the integers from 0 on
    if spec.reward_values:
        counts["reward"] = spec.num_rewards
    if spec.obs_dtype == torch.int64:
        counts |= dict.fromkeys(OBSERVATIONS, spec.num_obs)
    if spec.action_dtype == torch.int64:
        counts |= {"action": spec.num_actions, "optimal_action": spec.num_actions + 1}  # the last one: unknown
    dtypes |= {name: str(np.min_scalar_type(count - 1)) for name, count in counts.items()}
    return {name: (dtype, shapes.get(name, ())) for name, dtype in dtypes.items()}


def rollout_of(spec: EnvSpec, columns: Mapping[str, np.ndarray]) -> Rollout:
    """Transitions in the dtypes of `Step` from recorded columns of any leading shape."""
    steps = {name: torch.from_numpy(np.array(columns[name], order="C")) for name in Rollout._fields}
    dtypes = step_dtypes(spec)
    if spec.reward_values:
        steps["reward"] = spec.reward_of(steps["reward"].long())
    return Rollout(**{name: step.to(dtypes[name]) for name, step in steps.items()})


def bytes_of(columns: Iterable[Any], num_steps: int = 1) -> int:
    """Bytes of this many steps of the columns `[rows, time, ...]`."""
    return num_steps * sum(column.dtype.itemsize * math.prod(column.shape[2:]) for column in columns)


def row_chunks(num_rows: int, row_size: int, group: int = 1, most: int = 0) -> Iterator[slice]:
    """Slices of rows of `row_size` bytes that cover all rows in order, with at most so many bytes each (0: a number
    that fits into any memory), but at least one `group` of rows, and never a part of one."""
    size = max(1, (most or _CHUNK) // (max(1, row_size) * group)) * group
    for start in range(0, num_rows, size):
        yield slice(start, min(start + size, num_rows))


def scratch(folder: Path, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Array on disk that disappears with this process: in `folder`, or the system's folder of temporary files if that
    may only be read. Raises `PipelineError` if there is no room."""
    where = folder if os.access(folder, os.W_OK) else None
    try:
        with TemporaryFile(dir=where) as file:  # without a name, so a killed process leaves nothing
            reserve(file, max(1, math.prod(shape) * np.dtype(dtype).itemsize), where or Path(gettempdir()))
            return np.memmap(file, dtype, "r+", shape=shape)
    except OSError as error:
        raise PipelineError(f"cannot write to {where or 'TMPDIR'}: {error.strerror}; set TMPDIR") from error


class MappedSteps:
    """The first `num_steps` steps of chosen rows, read from disk as they are used: of `recorded` columns the `rows`, of
    `computed` ones all. A step has the number it would have if these rows were one after the other."""

    def __init__(
        self, recorded: Mapping[str, Any], computed: Mapping[str, np.ndarray], rows: np.ndarray, num_steps: int
    ) -> None:
        self._columns, self._computed = {**recorded, **computed}, computed
        self._rows, self._num_steps = rows, num_steps
        kept = {name: column for name, column in recorded.items() if name not in computed}
        self._recorded = {name: getattr(column, "parts", [column]) for name, column in kept.items()}
        lengths = [len(part) for part in next(iter(self._recorded.values()))]
        self._ends = np.cumsum(lengths)
        self._starts = self._ends - lengths

    def read(self, numbers: Tensor) -> dict[str, Tensor]:
        """Steps with these numbers `[B, T]`, by column; those of a window, `[T]`, ascend and are of one row."""
        row, step = numbers[:, 0].numpy() // self._num_steps, numbers.numpy() % self._num_steps
        everything: Any = slice(None)
        chosen = numbers.numpy()
        reads = [(name, column, everything, chosen) for name, column in self._computed.items()]
        there = self._rows[row]
        part = np.searchsorted(self._ends, there, side="right")
        for number in np.unique(part):
            which = everything if len(self._ends) == 1 else np.flatnonzero(part == number)
            columns = {name: parts[number] for name, parts in self._recorded.items()}
            row_len = next(iter(columns.values())).shape[1]
            chosen = (there[which] - self._starts[number])[:, None] * row_len + step[which]
            reads += [(name, column, which, chosen) for name, column in columns.items()]
        for prepare in BEFORE_READS:
            prepare([(column, chosen) for _, column, _, chosen in reads])
        found: dict[str, np.ndarray] = {}
        for name, column, which, chosen in reads:
            steps = np.asarray(column).reshape(-1, *column.shape[2:])[chosen]
            if which is everything:
                found[name] = steps
            else:
                found.setdefault(name, np.empty((*step.shape, *steps.shape[2:]), steps.dtype))[which] = steps
        return {name: torch.from_numpy(column) for name, column in found.items()}

    def chunks(self, name: str) -> Iterator[np.ndarray]:
        """All steps of a column, `[rows, steps, ...]` of some rows at a time."""
        column = self._columns[name]
        for chunk in row_chunks(len(self._rows), bytes_of([column], self._num_steps)):
            yield column[chunk if name in self._computed else self._rows[chunk], : self._num_steps]
