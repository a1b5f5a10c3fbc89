"""How an option is declared: its type, range, meaning and the stages that use it, in one place.

A field has no default here: every default is written out in `conf/*.yaml`.
"""

import dataclasses
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, cast

from icrl.config.schedules import make_schedule, values_of
from icrl.contracts import ConfigError

_TEXTS = {  # by option; others are names
    "root": "a path",
    "code_snapshots": "a path",
    "id": "an id of Gymnasium",
    "question": "a text",
    "xlabel": "a text",
    "load_from": "a path",
    "initial_model": "a path",
    "initial_model_prefix": "a path",
    "initial_encoder": "a path",
    "reward_plugin": "a name or a path",
    "type": "auto, cpu, cuda or cuda:N",
}
_KINDS: dict[Any, str] = {list[float]: "a list of floats", list[int]: "a list of ints", float | None: "null or float"}
_BOUNDS = {"above": (">", operator.gt), "low": (">=", operator.ge), "high": ("<=", operator.le)}
LARGEST = 10**9  # of an int whose declaration gives no `high`: products of two of them fit 64 bits


def option(
    meaning: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: Sequence[str] = (),
    may_change: bool = False,
    stages: str = "",
) -> Any:
    """Declare an option: `low <= value <= high`, `value > above`, or one of `choices`. An int without `high` is at most
    `LARGEST`. `may_change` marks what a continued run may set anew, because it does not touch what the run computes.
    `stages` says where it acts, where that is not the same as for the rest of its group."""
    limits = {"low": low, "high": high, "above": above, "choices": tuple(choices)}
    return dataclasses.field(
        metadata={"meaning": meaning, "may_change": may_change, "stages": stages, "rate": False, **limits}
    )


def rate(meaning: str, **limits: Any) -> Any:
    """Declare an option that is a number or a schedule (`schedules.py`), whose every value is in the range."""
    declared = option(meaning, **limits)
    return dataclasses.field(metadata={**declared.metadata, "rate": True})


def group(meaning: str, stages: str) -> Any:
    """Declare a group of options and the stages that use it."""
    return dataclasses.field(metadata={"meaning": meaning, "stages": stages})


def walk(config: Any, prefix: str = "") -> Iterable[tuple[str, Any, dataclasses.Field[Any]]]:
    """Every option as (dotted key, value, declaration), in order of declaration."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from walk(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", value, field


def stages_of(config: Any, key: str) -> str:
    """The stages in which the option with this dotted key acts."""
    head, _, leaf = key.rpartition(".")
    fields = {field.name: field for field in dataclasses.fields(config)}
    if not head:
        return fields[leaf].metadata["stages"]
    own = {field.name: field for field in dataclasses.fields(getattr(config, head))}[leaf].metadata["stages"]
    return own or fields[head].metadata["stages"]


def limits_of(field: dataclasses.Field[Any]) -> dict[str, Any]:
    """The limits of a declaration; those of an int have a `high`."""
    limits = dict(field.metadata)
    if limits["high"] is None and field.type in (int, list[int]):
        limits["high"] = LARGEST
    return limits


def allowed(field: dataclasses.Field[Any]) -> str:
    """What a declaration allows, in words: its type and range."""
    limits = limits_of(field)
    if limits["choices"]:
        return f"{'names among' if field.type == list[str] else 'one of'} {', '.join(limits['choices'])}"
    if field.type is str:
        return _TEXTS.get(field.name, "a name without '/' or a leading dot")
    if field.type == list[str]:
        return "a list of paths" if field.name in _TEXTS else "a name without '/' or a leading dot, or a list of such"
    if field.type == list[Any]:
        return "a list of mappings"
    kind = "float, or a schedule of such values," if limits["rate"] else _KINDS.get(field.type)
    kind = kind or cast(type, field.type).__name__
    bounds = " and ".join(f"{sign} {limits[key]}" for key, (sign, _) in _BOUNDS.items() if limits[key] is not None)
    return f"{kind} {bounds}".strip()


def check_range(key: str, value: Any, field: dataclasses.Field[Any]) -> None:
    """Raise `ConfigError` unless `value` is what the declaration of `key` allows."""
    limits = limits_of(field)
    if limits["choices"]:
        good = all(one in limits["choices"] for one in (value if isinstance(value, list) else [value]))
    elif limits["rate"]:
        try:
            make_schedule(value)
        except ValueError as error:
            raise ConfigError(f"{key}: {error}") from error
        good = all(_bounded(number, limits) for number in values_of(value))
    else:
        good = all(_fits(one, field) for one in (value if isinstance(value, list) else [value]))
    if not good:
        raise ConfigError(f"{key}={value}: must be {allowed(field)}")


def _fits(value: Any, field: dataclasses.Field[Any]) -> bool:
    """Whether a value, or an item of a list, is what the declaration allows."""
    if field.type == list[Any]:
        return isinstance(value, dict) and all(isinstance(name, str) for name in value)
    if isinstance(value, (int, float)):
        return _bounded(value, limits_of(field))
    if value is None:  # OmegaConf has seen to it that this may be
        return True
    if field.type not in (str, list[str]):
        return not isinstance(value, (list, dict))
    named = isinstance(value, str) and value != ""
    return named and (field.name in _TEXTS or not ("/" in value or value.startswith(".")))


def _bounded(value: float, limits: Any) -> bool:
    within = all(limits[key] is None or holds(value, limits[key]) for key, (_, holds) in _BOUNDS.items())
    return math.isfinite(value) and within
