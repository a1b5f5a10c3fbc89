"""Files of a run: atomic, with checksum and owner, on reserved disk space; one writer per folder.

Each file that a program reads again names its program, run and step, so misplaced files are refused.
"""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from icrl.config.modules import describe_error
from icrl.config.options import Options, quoted, walk, without_former
from icrl.contracts import ConfigError, Json, PipelineError

_CLONE = Path(__file__).resolve().parents[3]
PROJECT = _CLONE if (_CLONE / "pyproject.toml").exists() else Path.cwd()  # of relative folders; installed: this one
_SEAL = "sha256"
_OWNER = {"program": str, "run": str, "step": int}


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` atomically: after a crash it has the old content or the new, never a part."""
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # makes the rename durable
        finally:
            os.close(folder)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise PipelineError(f"cannot write {path}: {error.strerror}; the previous file is unchanged") from error


@contextmanager
def content_of(path: Path, damage: type[PipelineError]) -> Iterator[None]:
    """Context that uses the content of the file or folder `path`: whatever this raises becomes a `damage` that names
    it, because a file may say anything."""
    try:
        yield
    except Exception as error:
        what = " ".join(str(error).split()) if isinstance(error, PipelineError) else describe_error(error)
        raise damage(what if what.startswith(str(path)) else f"{path} cannot be used: {what}") from error


def write_json(path: Path, value: Json) -> None:
    """Write a mapping, with its checksum as `sha256`."""
    content = json.loads(json.dumps(value))  # as a reader will see it
    write_atomically(path, (json.dumps(content | {_SEAL: digest(content)}, indent=1) + "\n").encode())


def read_json(path: Path, form: Any = dict) -> Json:
    """Mapping written by `write_json`, which has this `form` (see `has_form`)."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PipelineError(f"{path} is not readable as JSON: {error}") from error
    if not isinstance(content, dict) or content.pop(_SEAL, None) != digest(content):
        raise PipelineError(f"{path} is damaged: its checksum is wrong; restore it")
    if not has_form(content, form):
        raise PipelineError(f"{path} has unexpected content: another program or version wrote it")
    return content


def has_form(content: Json, form: Any) -> bool:
    """Compare `content` with a `form`: a type (`float` includes ints), a tuple of alternatives, `[form]` for a list,
    `{name: form, ...}` for a mapping with at least these keys, or `{str: form}` if all values have one form."""
    match form:
        case tuple():
            return any(has_form(content, one) for one in form)
        case [item]:
            return isinstance(content, list) and all(has_form(one, item) for one in content)
        case dict():
            return isinstance(content, dict) and all(
                all(has_form(value, part) for value in content.values())
                if name is str
                else name in content and has_form(content[name], part)
                for name, part in form.items()
            )
    return type(content) is form or (form is float and type(content) is int)


def digest(content: Json) -> str:
    """SHA-256 of a JSON value, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def reserve(file: IO[bytes], size: int, path: Path) -> None:
    """Allocate `size` bytes on disk for the open `file` (errors name `path`); on a full disk a write through a memory
    map would kill the process."""
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:  # macOS: write the missing bytes
            file.seek(0, os.SEEK_END)
            while (missing := size - file.tell()) > 0:
                file.write(bytes(min(missing, 1 << 24)))
            file.flush()
        os.fsync(file.fileno())
    except OSError as error:
        raise PipelineError(f"cannot reserve {size / 1e6:.1f} MB for {path}: {error.strerror}") from error


@contextmanager
def only_writer(directory: Path) -> Iterator[None]:
    """Lock `directory` for this process; a second run on it is refused. The lock ends with the process."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / ".lock").open("w")
    except OSError as error:
        raise PipelineError(f"cannot write to {directory}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PipelineError(f"another run is writing to {directory}: wait for it, or give another name=") from error
        except OSError as error:
            raise PipelineError(f"cannot lock {directory}: {error.strerror}") from error
        yield


class Identity(NamedTuple):
    """Program and digest that identify a run."""

    program: str
    run: str  # digest of options and inputs that affect results; not of name or folder

    def __str__(self) -> str:
        return f"{self.program} (run {self.run[:12]})"

    @classmethod
    def of(cls, described: Json) -> Self:
        """Identity in the description beside a checkpoint."""
        return cls(str(described.get("program")), str(described.get("run")))


def identity_of(program: str, config: Options, groups: Collection[str], inputs: Json | None = None) -> Identity:
    """Identity of the run of `program` with `config`: its options in `groups`, without budgets and those that
    `may_change` when it resumes, and checksums of its `inputs`. Whole floats count as ints: both can be written."""
    of_groups = [option for option in walk(config) if option[0].split(".")[0] in groups]
    options = {key: value for key, value, field in of_groups if not (field.may_change or field.is_budget)}
    text = json.dumps({"program": program, "options": options, "inputs": inputs or {}})
    return Identity(program, digest(json.loads(text, parse_float=_plain)))


def _plain(number: str) -> float:
    return int(value) if (value := float(number)).is_integer() else value


def check_owner(path: Path, owner_there: Identity, expected: Identity) -> None:
    """Raise `PipelineError` unless the run `owner_there` in the file `path` is the `expected` one."""
    if owner_there != expected:
        raise PipelineError(
            f"{path} is from {owner_there}, but {expected} is needed here: restore the right file, or remove this one"
        )


def write_owned(path: Path, owner: Identity, step: int, content: Json) -> None:
    """Write a mapping as `write_json` does, with its owner and step."""
    write_json(path, content | {"owner": owner._asdict() | {"step": step}})


def read_owned(path: Path, form: Any) -> tuple[Json, Identity, int]:
    """Content, owner and step written by `write_owned`; otherwise as `read_json`."""
    content = read_json(path, {"owner": _OWNER, **form})
    owner = content.pop("owner")
    return content, Identity(owner["program"], owner["run"]), owner["step"]


def check_same(
    config: Options,
    recorded: Json,
    sections: Iterable[str],
    where: str,
    *,
    budgets: bool = True,
    other: str = "another name=",
) -> None:
    """Raise `ConfigError` unless `config` equals the `recorded` one in `sections`, but for options that `may_change`
    and, without `budgets`, for those; and unless files of the user's own are the same as then. `other`: options with
    which there would be no conflict.

    All stages of a run take the same options, so each is compared with the record of the stage before it."""
    for section in sections:
        if isinstance(of_section := getattr(config, section, None), Options):
            without_former(type(of_section), recorded.get(section), f"{where} was made with {section}.")
    for key, value, field in walk(config):
        section, _, _ = key.partition(".")
        if section not in sections or field.may_change or (field.is_budget and not budgets):
            continue
        if (before := recorded_value(recorded, key)) != value:
            plain = before is not None and re.fullmatch(r"[\w.:/+-]*", str(before))
            then = before if plain else re.sub(r'"(\w+)":', r"\1:", quoted(before))  # as on a command line
            made = f"{where} was made with {key}={then}, but this configuration has {value}"
            raise ConfigError(f"{made}: give {key}={then} here too, or {other}")
    for module, now in getattr(config, "code", {}).items():
        before = (recorded.get("code") or {}).get(module, now)
        changed = f"{where} was made with another {module}.py (sha256 {before[:12]}, now {now[:12]})"
        if now != before:
            raise ConfigError(f"{changed}: restore that file, or give another name=")


def recorded_value(recorded: Json, key: str) -> Any:
    """Value of the option with the dotted `key` in a recorded configuration; None if it is missing."""
    section, _, leaf = key.partition(".")
    value = recorded.get(section)
    return (value.get(leaf) if isinstance(value, dict) else None) if leaf else value
