"""Rules for the columns of a file; what the spaces of a world allow is checked later (`imports.py`)."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from icrl.contracts import ConfigError

_MOST_TASKS = 10**6


class Rule(NamedTuple):
    """Rule for a column of a file: the kinds of its dtype, the most axes of a step, and which numbers are valid."""

    kinds: str
    axes: int
    form: str
    valid: Callable[[np.ndarray], np.ndarray]
    words: str


def _finite(column: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.isfinite(column if column.dtype.kind != "f" else column.astype(np.float32))


def _task(column: np.ndarray) -> np.ndarray:
    return (column >= 0) & (column < _MOST_TASKS) & (column == np.floor(column))


_FINITE = (_finite, "finite in float32")
_OBS = Rule("biuf", 3, "a number, a vector or an image for each step", *_FINITE)
_ACTION = Rule("biuf", 1, "a number or a vector for each step", *_FINITE)
_SCALAR = Rule("biuf", 0, "a number for each step", *_FINITE)
_FLAG = _SCALAR._replace(valid=lambda column: (column == 0) | (column == 1), words="0 or 1")
RULES = {
    **{"obs": _OBS, "action": _ACTION, "reward": _SCALAR, "next_obs": _OBS, "timestep": _SCALAR},
    **{"terminated": _FLAG, "truncated": _FLAG},
    "optimal_action": _ACTION._replace(
        valid=lambda column: _finite(column) | np.isnan(column), words="finite in float32, or NaN if unknown"
    ),
    "task": Rule("iuf", 0, "a number for each row", _task, f"a whole number from 0 to {_MOST_TASKS - 1}"),
}


def check_column(place: str, name: str, column: np.ndarray) -> None:
    """Raise `ConfigError`, which names place, column, what it has and what is allowed, if a column `[T, ...]` of a file
    breaks its rule."""
    rule, of_step = RULES[name], column.shape[1:]
    if column.dtype.kind not in rule.kinds or not column.ndim or len(of_step) > rule.axes or 0 in of_step:
        has = f"is of type {column.dtype} and shape {list(column.shape)}"
        raise ConfigError(f"{place}: column {name} {has}; must have {rule.form}, {rule.words}")
    valid = np.asarray(rule.valid(column).all(axis=tuple(range(1, column.ndim))))
    require(place, name, column, valid, f"must be {rule.words}")


def require(place: str, name: str, column: np.ndarray, valid: np.ndarray, rule: str) -> None:
    """Raise `ConfigError` about the first step `[T]` of a column that is not `valid`."""
    if not valid.all():
        step = int(valid.argmin())
        where = f", step {step}" if len(column) > 1 else ""
        raise ConfigError(f"{place}: column {name}{where}: {column[step].tolist()} {rule}")
