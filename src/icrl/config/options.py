"""Declaration of options: default, type, range, meaning and stages of each one in one place.

Every group of options is one pydantic model, `Options`, beside the code that it configures:

    class GPTConfig(Options):
        context_len: int = option(160, "env steps in the context, across episodes", ge=2, le=10**6)

Values are not converted (a text is not a number), but an int is valid as a float, and a number as a name. An unknown
option is an error.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from icrl.config.schedules import make_schedule, values_of
from icrl.contracts import ConfigError

LARGEST = 10**9  # of an int whose declaration gives no `le`: products of two of them fit 64 bits


class Options(BaseModel):
    """Group of options. Raises pydantic's `ValidationError` for a value that is not allowed."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())

    @field_validator("*")
    @classmethod
    def _check_large(cls, value: Any) -> Any:
        if (
            max((one for one in (value if isinstance(value, list) else [value]) if type(one) is int), default=0)
            > LARGEST
        ):
            raise ValueError
        return value


def option(default: Any, meaning: str, *, may_change: bool = False, stages: str = "", **limits: float) -> Any:
    """Declare an option; `limits` are `ge`, `gt` and `le` of a number. `may_change` marks options that may change when
    a run resumes, because they do not affect results. `stages` are those of the option, if they differ from its
    group."""
    about = {"may_change": may_change, "stages": stages}
    return Field(default, description=meaning, json_schema_extra=about, **limits)  # pyrefly: ignore


def refuse(condition: object, message: str) -> None:
    """Raise `ConfigError` with `message` if `condition` holds."""
    if condition:
        raise ConfigError(message)


def refuse_both(section: str, number: tuple[str, int], interval: tuple[str, int]) -> None:
    """Raise `ConfigError` if both a number of events and an interval are given."""
    refuse(
        number[1] and interval[1],
        f"{section}.{number[0]}={number[1]} and {section}.{interval[0]}={interval[1]}: one of them must be 0",
    )


def group(default: Any, meaning: str, stages: str) -> Any:
    """Declare a group of options, the class `default` unless another is chosen, and the stages that use it."""
    return Field(default_factory=default, description=meaning, json_schema_extra={"stages": stages})


@dataclass(frozen=True)
class Rate:
    """Annotation of an option that is a number or a schedule (`schedules.py`) with all values in the range."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._check)

    def _check(self, value: Any) -> Any:
        for number in values_of(value):
            inside = (
                math.isfinite(number)
                and (self.ge is None or number >= self.ge)
                and (self.gt is None or number > self.gt)
                and (self.le is None or number <= self.le)
            )
            if not inside:
                raise ValueError
        make_schedule(value)
        return value


@dataclass(frozen=True)
class _Text:
    """Annotation of a text option; `words` describe the allowed texts."""

    words: str
    is_name: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._check)

    def _check(self, value: Any) -> str:
        if not isinstance(value, (str, int, float)) or value == "":
            raise ValueError
        text = str(value)
        if self.is_name and ("/" in text or text.startswith(".")):
            raise ValueError
        return text


@dataclass(frozen=True)
class OneOf:
    """Annotation of an option that is one of `names`, if these are not in a `Literal`."""

    names: tuple[str, ...]

    @property
    def words(self) -> str:
        return f"one of {', '.join(self.names)}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.literal_schema(list(self.names))


NAME_WORDS = "a name without '/' or a leading dot"
Name = Annotated[str, _Text(NAME_WORDS, is_name=True)]  # names a folder
PathName = Annotated[str, _Text("a path")]
Text = Annotated[str, _Text("a text")]
PluginName = Annotated[str, _Text("a name or a path")]
EnvId = Annotated[str, _Text("an id of Gymnasium")]
DeviceName = Annotated[str, _Text("auto, cpu, cuda or cuda:N")]
OneOrMore = BeforeValidator(lambda value: value if isinstance(value, list) or value is None else [value])


class Declared(NamedTuple):
    """Declaration of an option, for texts and checks."""

    meaning: str
    allowed: str
    may_change: bool
    stages: str  # that use it


def declared(field: FieldInfo, stages: str = "") -> Declared:
    """Declaration of `field` in a group used by `stages`."""
    about: Any = field.json_schema_extra or {}
    return Declared(field.description or "", allowed(field), about.get("may_change", False), about["stages"] or stages)


def walk(config: Options, prefix: str = "", stages: str = "") -> Iterator[tuple[str, Any, Declared]]:
    """Every option as (dotted key, value, declaration), in order of declaration."""
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, Options):
            yield from walk(value, f"{prefix}{name}.", declared(field).stages)
        else:
            yield f"{prefix}{name}", value, declared(field, stages)


AnyOptions = TypeVar("AnyOptions", bound=Options)


def replace(options: AnyOptions, **changes: Any) -> AnyOptions:
    """Copy of `options` with `changes`, which are not checked."""
    kind: type[Options] = type(options)
    if unknown := set(changes) - set(kind.model_fields):
        raise TypeError(f"{kind.__name__} has no options {sorted(unknown)}")
    return options.model_copy(update=changes)


def allowed(field: FieldInfo) -> str:
    """Words for the type and range of a declaration."""
    kind = field.annotation
    for mark in field.metadata:
        if isinstance(mark, (_Text, OneOf)):
            return mark.words
        if isinstance(mark, Rate):
            return f"float, or a schedule of such values, {_range(field)}".strip()
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) is list:
        return _allowed_list(get_args(kind)[0], field)
    if kind is bool:
        return "true or false"
    words = "null or float" if kind == float | None else getattr(kind, "__name__", str(kind))
    return f"{words} {_range(field)}".strip()


def _allowed_list(item: Any, field: FieldInfo) -> str:
    inner = FieldInfo.from_annotation(item)
    words = allowed(inner)
    if words.startswith("one of "):
        return f"names among {words.removeprefix('one of ')}"
    if get_origin(inner.annotation) is dict:
        return "a list of mappings"
    if words == NAME_WORDS:
        return f"{words}, or a list of such"
    first, _, rest = words.removeprefix("a ").partition(" ")
    return f"a list of {first}s {rest}".strip()


def _bounds(field: FieldInfo) -> dict[str, float]:
    found: dict[str, float] = {}
    for mark in field.metadata:
        if isinstance(mark, Rate):
            limits = {">": mark.gt, ">=": mark.ge, "<=": mark.le}
            found |= {sign: limit for sign, limit in limits.items() if limit is not None}
        elif isinstance(mark, Gt):
            found[">"] = mark.gt  # type: ignore[assignment]
        elif isinstance(mark, Ge):
            found[">="] = mark.ge  # type: ignore[assignment]
        elif isinstance(mark, Le):
            found["<="] = mark.le  # type: ignore[assignment]
    if get_origin(field.annotation) is list:
        return _bounds(FieldInfo.from_annotation(get_args(field.annotation)[0]))
    return found


def _range(field: FieldInfo) -> str:
    bounds = _bounds(field)
    if field.annotation is int:
        bounds.setdefault("<=", LARGEST)
    return " and ".join(f"{sign} {bounds[sign]}" for sign in (">", ">=", "<=") if sign in bounds)


def nearest(name: object, names: Iterable[str]) -> str:
    """Words that propose the nearest of `names`; empty if none is near."""
    near = get_close_matches(str(name), list(names), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def in_words(error: ValidationError, kind: type[Options], values: Mapping[str, Any], prefix: str = "") -> str:
    """One line about the first error in the `values` of options of `kind`, with keys that begin with `prefix`: field,
    value and allowed values, and for an unknown name the nearest one."""
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    if (field := kind.model_fields.get(name)) is None:
        return f"{prefix}{name}: there is no such option{nearest(name, kind.model_fields)}"
    if reason := str(first.get("ctx", {}).get("error", "")):
        return f"{prefix}{name}: {reason}"
    return f"{prefix}{name}={values.get(name)}: must be {allowed(field)}"
