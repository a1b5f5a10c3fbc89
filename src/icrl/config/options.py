"""Declaration of options: default, type, range, meaning and stages of each one in one place.

Every group of options is one pydantic model, `Options`, beside the code that it configures:

    class GPTConfig(Options):
        context_len: int = option(160, "env steps in the context, across episodes", ge=2, le=10**6)

Values are not converted (a text is not a number), but an int is valid as a float, and a number as a name. An unknown
option is an error.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, Field, PlainValidator, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import core_schema

from icrl.config.schedules import nearest, values_of
from icrl.contracts import ConfigError, PipelineError

NO_EFFECT: Any = None  # in `former`: the option changed no run
LARGEST = 10**9  # of an int whose declaration gives no `le`: products of two of them fit 64 bits
_MOST_SHOWN = 200  # characters of a value in a message
OR_ELSEWHERE = "; an extension or a file of your own (module=FILE) may have it"  # after the names that are known
_SIGNS = {"gt": ">", "ge": ">=", "le": "<="}


class Options(BaseModel, extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=()):
    """Group of options. Raises pydantic's `ValidationError` for a value that is not allowed. `former` are options of
    earlier versions, each with the value that is now fixed, or a tuple of it and values that changed nothing, or
    `NO_EFFECT`: any value is accepted."""

    former: ClassVar[Mapping[str, Any]] = {}

    @field_validator("*")
    @classmethod
    def _check_large(cls, value: Any) -> Any:
        if any(type(one) is int and one > LARGEST for one in (value if isinstance(value, list) else [value])):
            raise ValueError
        return value


def option(
    default: Any, meaning: str, *, may_change: bool = False, is_budget: bool = False, stages: str = "", **limits: float
) -> Any:
    """Declare an option; `limits` are `ge`, `gt` and `le` of a number. `may_change` marks options that may change when
    a run resumes, because they do not affect results; `is_budget` those that say how long it is, which may change too
    unless something else depends on that. `stages` are those of the option, if they differ from its group."""
    about = {"may_change": may_change, "is_budget": is_budget, "stages": stages}
    return Field(default, description=meaning, json_schema_extra=about, **limits)  # pyrefly: ignore


def seed_option(meaning: str, stages: str) -> Any:
    """Declare the seed of a run."""
    drawn = "null: draw one, which is recorded and taken again when the run continues"
    return option(0, f"{meaning}; {drawn}", ge=0, le=MOST_SEEDS, stages=stages)


def presets_option(stages: str) -> Any:
    """Declare the folder with the user's own presets, which `compose` reads."""
    meaning = "folder with presets of your own, <group>/<name>.yaml, relative to the working directory"
    return option("none", meaning, may_change=True, stages=stages)


def with_values(message: str, options: Any, prefix: str = "") -> str:
    """The `message` with KEY=VALUE for each `$KEY` of the `options`; shown keys begin with `prefix`."""
    named = re.compile(r"\$(\w+(?:\.\w+)?)")
    return named.sub(lambda key: f"{prefix}{key[1]}={_written(attrgetter(key[1])(options))}", message)


def _written(value: Any) -> str:
    """The value of an option as on a command line."""
    if isinstance(value, list):
        return f"[{','.join(map(_written, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def refuse(condition: object, message: str) -> None:
    """Raise `ConfigError` with `message` if `condition` holds."""
    if condition:
        raise ConfigError(message)


def former_of(kind: type[Options]) -> dict[str, Any]:
    """Options that earlier versions of `kind` had, and the values of them that are read."""
    of_bases = (getattr(base, "former", {}) for base in reversed(kind.__mro__))
    return {name: usual for one in of_bases for name, usual in one.items() if name not in kind.model_fields}


def without_former(kind: type[Options], values: Any, prefix: str = "") -> Any:
    """The recorded `values` of options of `kind` without the `former` ones. Raises `PipelineError` where one of these
    had another value than this version has; names of options begin with `prefix`."""
    if not isinstance(values, Mapping):
        return values
    former = former_of(kind)
    for name in [name for name in values if name in former]:
        usual = former[name] if isinstance(former[name], tuple) else (former[name],)
        if former[name] is not NO_EFFECT and values[name] not in usual:
            only = f"this version has no such option, and always uses {quoted(usual[0])}"
            raise PipelineError(f"{prefix}{name}={quoted(values[name])}: {only}")
    return {name: value for name, value in values.items() if name not in former}


def group_class(root: type[Options], group: str, values: Any) -> type[Options] | None:
    """Class of the `group` of a root with the recorded `values`; None for a plain option or an unknown choice."""
    if (field := root.model_fields.get(group)) is None or field.default_factory is None:
        return None
    if (choice := _choice_of(field)) is None:
        return field.default_factory  # pyrefly: ignore
    return choice.choices().get(str(values.get("name"))) if isinstance(values, Mapping) else None


def quoted(value: Any) -> str:
    """A value from a file in a message: quoted, without control characters, and cut after 200 characters."""
    text = json.dumps(value, default=str)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def refuse_both(section: str, **given: int) -> None:
    """Raise `ConfigError` if both a number of events and an interval are given, by the names of their options."""
    named = " and ".join(f"{section}.{name}={value}" for name, value in given.items())
    refuse(all(given.values()), f"{named}: one of them must be 0")


def group(default: Any, meaning: str, stages: str) -> Any:
    """Declare a group of options, the class `default` unless another is chosen, and the stages that use it."""
    return Field(default_factory=default, description=meaning, json_schema_extra={"stages": stages})


@dataclass(frozen=True)
class Rate:
    """Annotation of an option that is a number or a schedule (`schedules.py`) with all values in the range."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None

    @property
    def words(self) -> str:
        return f"float, or a schedule of such values, {_range([self])}".strip()

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self._check)

    def _check(self, value: Any) -> Any:
        for number in values_of(value):
            above = (self.ge is None or number >= self.ge) and (self.gt is None or number > self.gt)
            if not above or (self.le is not None and number > self.le):
                raise ValueError
        return value


@dataclass(frozen=True)
class OneOf:
    """Annotation of an option that is one of `names`, or matches `pattern`, of which `others` says what it is."""

    names: tuple[str, ...]
    pattern: str
    others: str

    @property
    def words(self) -> str:
        return f"one of {', '.join(self.names)}, or {self.others}"

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        names = core_schema.literal_schema(list(self.names))
        return core_schema.union_schema([names, core_schema.str_schema(pattern=self.pattern, strict=True)])


@dataclass(frozen=True)
class Choice:
    """Annotation of a group that is one of several classes of options, the one with its `name` in `choices()`. These
    are asked when a configuration is made, so a module of the user's own may have added some."""

    group: str
    choices: Callable[[], Mapping[str, type[Options]]]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self._check)

    def _check(self, value: Any) -> Options:
        if isinstance(value, Options):
            return value
        name = str(value["name"] if isinstance(value, dict) and "name" in value else value)
        if (kind := self.choices().get(name)) is None:
            raise ConfigError(f"{self.group}.name={name}: must be one of {', '.join(self.choices())}{OR_ELSEWHERE}")
        return kind.model_validate(value)


def _choice_of(field: FieldInfo) -> Choice | None:
    return next((mark for mark in field.metadata if isinstance(mark, Choice)), None)


def _check_text(value: Any, pattern: str = "(?s:.+)") -> str:
    if not isinstance(value, (str, int, float)) or "\0" in str(value) or not re.fullmatch(pattern, str(value)):
        raise ValueError
    return str(value)


# The last text among the marks of a type describes what is allowed.
NAME_WORDS = "a name without '/' or a leading dot"
_check_name = partial(_check_text, pattern=r"(?!\.)[^/\x00-\x1f\x7f]+")
Name = Annotated[str, PlainValidator(_check_name), NAME_WORDS]  # names a folder
Text = Annotated[str, PlainValidator(_check_text), "a text"]
PathName = Annotated[Text, "a path"]
MOST_SEEDS = 10**9
Seed = Annotated[int, f"null, or int >= 0 and <= {MOST_SEEDS}"]  # null: `compose` puts a number in its place
OneOrMore = BeforeValidator(lambda value: value if isinstance(value, list) or value is None else [value])


class RootOptions(Options):
    """All options of a program; each class declares the values of these."""

    page: ClassVar[str]  # the YAML file with its groups that have presets, and values that follow from others

    name: Name
    root: PathName
    presets: PathName
    seed: Seed
    num_threads: int


class Declared(NamedTuple):
    """Declaration of an option, for texts and checks."""

    meaning: str
    allowed: str
    may_change: bool
    is_budget: bool
    stages: str  # that use it


def walk(
    config: Options, prefix: str = "", stages: str = "", choice: Choice | None = None
) -> Iterator[tuple[str, Any, Declared]]:
    """Every option as (dotted key, value, declaration), in order of declaration. `config` is one of `choice`."""
    for name, field in type(config).model_fields.items():
        value, about = getattr(config, name), dict[str, Any](field.json_schema_extra or {})  # pyrefly: ignore
        # A group of a program that is no stage belongs to that program alone.
        used = stages if stages.isalpha() and stages != "all" else about["stages"] or stages
        if isinstance(value, Options):
            yield from walk(value, f"{prefix}{name}.", used, _choice_of(field))
        else:
            words = f"one of {', '.join(sorted(choice.choices()))}" if choice and name == "name" else allowed(field)
            declared = Declared(field.description or "", words, about["may_change"], about["is_budget"], used)
            yield f"{prefix}{name}", value, declared


AnyOptions = TypeVar("AnyOptions", bound=Options)
AnyRoot = TypeVar("AnyRoot", bound=RootOptions)


def replace(options: AnyOptions, **changes: Any) -> AnyOptions:
    """Copy of `options` with `changes`, which are not checked."""
    if unknown := set(changes) - {name for name, _ in options}:
        raise TypeError(f"{type(options).__name__} has no options {sorted(unknown)}")
    return options.model_copy(update=changes)


def allowed(field: FieldInfo) -> str:
    """Words for the type and range of a declaration."""
    for mark in reversed(field.metadata):
        if words := mark if isinstance(mark, str) else getattr(mark, "words", ""):
            return words
    kind, parts = field.annotation, get_args(field.annotation)
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if get_origin(kind) is list:
        item = allowed(FieldInfo.from_annotation(parts[0]))
        if item == NAME_WORDS:
            return f"{item}, or a list of such"
        first, _, rest = item.removeprefix("a ").replace("float,", "float").partition(" ")
        return f"names among {rest.removeprefix('of ')}" if first == "one" else f"a list of {first}s {rest}".strip()
    names: dict[Any, str] = {bool: "true or false", float | None: "null or float", int: "int", float: "float"}
    return f"{names.get(kind, 'a mapping')} {_range(field.metadata, LARGEST if kind is int else None)}".strip()


def _range(marks: Iterable[Any], most: float | None = None) -> str:
    """Words for the bounds in `marks`; `most` is the upper one if there is no other."""
    bounds = {name: bound for mark in marks for name in _SIGNS if (bound := getattr(mark, name, None)) is not None}
    if most is not None:
        bounds.setdefault("le", most)
    return " and ".join(f"{sign} {bounds[name]}" for name, sign in _SIGNS.items() if name in bounds)


def first_of(error: ValidationError) -> Any:
    """The error to report: a name that is no option rather than a value that is missing because of it."""
    return min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")


def in_words(
    error: ValidationError, kind: type[BaseModel], values: Mapping[str, Any], prefix: str = "", depth: int = 0
) -> str:
    """One line about the first error in the `values` of options of `kind`, with keys that begin with `prefix`: field,
    value and allowed values, and for an unknown name the nearest one. `depth` is that of the keys in the error."""
    first = first_of(error)
    name = str(first["loc"][depth])
    if (field := kind.model_fields.get(name)) is None:
        groups = [one for one, field in kind.model_fields.items() if field.default_factory]
        names = groups if groups and isinstance(values.get(name), Mapping) else kind.model_fields
        return f"{prefix}{name}: there is no such option{nearest(name, names, prefix)}"
    if reason := str(first.get("ctx", {}).get("error", "")):
        return f"{prefix}{name}: {reason}"
    if first["type"] == "missing":
        return f"{prefix}{name} is missing: must be {allowed(field)}"
    given = str(values.get(name))
    shown = given if len(given) < _MOST_SHOWN else f"{given[:_MOST_SHOWN]}..."
    return f"{prefix}{name}={shown}: must be {allowed(field)}"
