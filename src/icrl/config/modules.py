"""Modules of the user's own, which register worlds, sources, objectives and encoders: Python files, installed modules.

A file is imported as the module of its name, and its folder is appended to `sys.path`, so that processes started later
find it too. Only what a command or an import of the user's names is imported: never what a file of a run names
(`recorded_options`).
"""

import importlib
import importlib.metadata
import re
import sys
from collections.abc import Callable, Container
from contextvars import ContextVar
from functools import cache
from hashlib import sha256
from importlib.util import cache_from_source
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from icrl import extensions
from icrl.config.options import AnyOptions, RootOptions, first_of, group_class, quoted, refuse, without_former
from icrl.contracts import ConfigError, PipelineError
from icrl.spaces import EnvSpec

_checksums: dict[str, str] = {}  # checksum of each file when it was imported, by module
LOADED: dict[str, None] = {}  # names of modules, in the order of their import
_record: ContextVar[bool] = ContextVar("_record", default=False)


def load_module(name: str, given: str) -> ModuleType:
    """Import the module `name`, a dotted name or the path of a Python file; a file that changed since is imported
    again. Raises `ConfigError`, which begins with the option as `given`, if it is missing, fails, or has the name of
    another module, or if a file of a run names it."""
    refuse(
        reads_record(), f"{given}: a file of the run names this module, and modules named by files are never imported"
    )
    path = None
    if name.endswith(".py"):
        path = Path(name).resolve()
        refuse(not path.is_file(), f"{given}: there is no such file, relative to the working directory")
        refuse(
            not path.stem.isidentifier(),
            f"{given}: {path.name} must have a name that a module can have: letters, digits, _",
        )
        name = path.stem
        if str(path.parent) not in sys.path:
            sys.path.append(str(path.parent))
    try:
        module = importlib.import_module(name)
        there = module.__file__ or "built in"
        other = path and Path(there).resolve() != path
        refuse(other, f"{given}: {there} is another module named {name}; rename the file")
        if path and (checksum := file_checksum(path)) != _checksums.setdefault(name, checksum):
            Path(cache_from_source(str(path))).unlink(missing_ok=True)  # it may have the time and size of the new text
            module, _checksums[name] = importlib.reload(module), checksum
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{given}: {describe_error(error)}") from error
    LOADED[name] = None
    return module


def reads_record() -> bool:
    """True while `recorded_options` reads what a file says."""
    return _record.get()


def recorded_options(kind: type[AnyOptions], values: Any, where: object, group: str = "") -> AnyOptions:
    """Options of `kind`, or of this `group` of them, with the `values` that the file or folder `where` records. Nothing
    that they name is imported, called or drawn. What the root `kind` does not have, is of an extension and left out,
    as are `former` options. Raises `PipelineError`, which names `where`, for values that are not allowed."""
    load_plugins()  # of installed packages, which no file names
    before = _record.set(True)
    try:
        if issubclass(kind, RootOptions) and isinstance(values, dict):
            known = {key: value for key, value in values.items() if key in kind.model_fields}
            kinds = {key: group_class(kind, key, value) for key, value in known.items()}
            values = {key: without_former(of, known[key], f"{key}.") if of else known[key] for key, of in kinds.items()}
        return kind.model_validate(without_former(kind, values, f"{group}." if group else ""))
    except ValidationError as error:
        first = first_of(error)
        key = ".".join(map(str, [*([group] if group else []), *first["loc"]]))
        what = f"{key}={quoted(first['input'])}: {first['msg'].removeprefix('Value error, ')}".removesuffix(": ")
        raise PipelineError(f"{where} records an option that is not allowed: {what}") from error
    except Exception as error:  # values from a file may make a rule raise anything
        what = str(error) if isinstance(error, PipelineError) else describe_error(error)
        named = values.get("module") if isinstance(values, dict) else None
        own = f"; it was made with module={quoted(named)}: import that first, if you trust it" if named else ""
        raise PipelineError(f"{where} records options that are not allowed: {what}{own}") from error
    finally:
        _record.reset(before)


def describe_error(error: BaseException) -> str:
    """Type and message of an error in one line, and how to install a missing package that an extra of ours has."""
    missing = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    how = f": {installation(extra)}" if (extra := extra_with(missing)) else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{how}"


def extra_module(name: str, needed_by: str, extra: str = "") -> Any:
    """Import the module `name`: a package of an `extra` (by default the one that has it), or a module of ours that
    needs one. Raises `ConfigError` if it is not installed, and names what it is `needed_by`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if (missing := (error.name or name).partition(".")[0]) == "icrl":
            raise
        why = "" if isinstance(error, ModuleNotFoundError) else f" ({error})"
        how = installation(extra or extra_with(missing) or "train")
        raise ConfigError(f"{needed_by} needs the package {missing}{why}: {how}") from error


def extra_with(package: str) -> str:
    """Extra of ours that installs a package, "" if none does."""
    try:
        needed = importlib.metadata.requires("in-context-rl") or []
    except importlib.metadata.PackageNotFoundError:  # not installed
        return ""
    matches = [re.fullmatch(r"([\w.-]+).*; extra == ['\"](\w+)['\"]", one) for one in needed]
    return next((one[2] for one in matches if package and one and one[1].replace("-", "_") == package), "")


def installation(extra: str) -> str:
    """Words for how to install what an optional part of the package needs."""
    return f'pip install "in-context-rl[{extra}]", or in a clone pip install -e ".[{extra}]"'


def command_of(program: str) -> str:
    """Command of a program: `python -m src.train_gpt` where this process was started so, else `icrl train-gpt`."""
    started = getattr(sys.modules["__main__"], "__spec__", None)
    if started and started.name.startswith("src."):
        return f"python -m src.{program}"
    return f"icrl {program.replace('_', '-')}"


def with_commands(text: str) -> str:
    """The `text`, which names programs as one runs them from a clone, with the commands that this process knows."""
    if command_of("").startswith("python"):
        return text
    named = re.compile(r"(python -m |-m )?\bsrc\.([a-z_]+)")
    return named.sub(lambda match: ("-m " if match[1] == "-m " else "") + command_of(match[2]), text)


def file_checksum(path: Path) -> str:
    """Checksum of a file."""
    return sha256(path.read_bytes()).hexdigest()


def checksums(modules: list[ModuleType]) -> dict[str, str]:
    """Checksum of the file of each module, by its name."""
    return {one.__name__: file_checksum(Path(one.__file__)) for one in modules if one.__file__}


@cache
def load_plugins() -> None:
    """Import the extensions, and modules that installed packages declare as entry points `icrl.plugins`."""
    extensions.load_all()
    for point in importlib.metadata.entry_points(group="icrl.plugins"):
        load_module(point.module, f"entry point icrl.plugins, {point.name}")


def registrar(
    kind: str, name: str, classes: dict[str, Any], options: Any = None, built_in: Container[str] = ()
) -> Callable[[Any], Any]:
    """Decorator that puts a class under `name` in `classes`, with its `options` as an attribute if they are given. It
    raises `ConfigError` if another `kind`, or one of those that are `built_in`, has this name."""

    def register(made: Any) -> Any:
        taken = name in built_in or classes.get(name, made).__module__ != made.__module__
        refuse(taken, f"@{kind}({name!r}) of {made.__module__}.{made.__name__}: there is another {kind} of this name")
        if options is not None:
            made.options = options
        classes[name] = made
        return made

    return register


class BySpec:
    """Decorator `@this(reads)` of a class of an extension for the worlds whose specs it `reads`. The core has one for
    worlds of one integer, and asks these about all others; `what` it is stands in messages."""

    def __init__(self, what: str) -> None:
        self._what, self._classes = what, list[tuple[Callable[[EnvSpec], bool], Any]]()

    def __call__(self, reads: Callable[[EnvSpec], bool]) -> Callable[[Any], Any]:
        def add(made: Any) -> Any:
            self._classes.append((reads, made))
            return made

        return add

    def of(self, spec: EnvSpec) -> Any:
        """The newest class that reads `spec`. Raises `ConfigError` if there is none."""
        load_plugins()
        found = next((made for reads, made in reversed(self._classes) if reads(spec)), None)
        spaces = f"observations in {spec.observation_space} and actions in {spec.action_space}"
        where = "it belongs to an extension that is not installed, or to a file of your own (module=FILE)"
        refuse(found is None, f"there is no {self._what} for {spaces}: {where}")
        return found
