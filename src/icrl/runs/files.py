"""File safety: atomic writes, reserved disk space, checksums, one writer per folder."""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from icrl.contracts import Json, PipelineError

Form = Any  # see `fits`

_SEAL = "sha256"


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
        sync_directory(path.parent)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise PipelineError(f"cannot write {path}: {error.strerror}; the previous file is unchanged") from error


def write_json(path: Path, value: Json) -> None:
    """Write a mapping, with its checksum as `sha256`."""
    content = json.loads(json.dumps(value))  # as a reader will see it
    write_atomically(path, (json.dumps(content | {_SEAL: digest(content)}, indent=1) + "\n").encode())


def read_json(path: Path, form: Form = dict) -> Json:
    """Mapping written by `write_json`, checked against `form` (see `fits`). Raises `PipelineError` with the name of a
    file that is missing, damaged or of another form."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PipelineError(f"{path} is not readable as JSON: {error}") from error
    if not isinstance(content, dict) or content.pop(_SEAL, None) != digest(content):
        raise PipelineError(f"{path} is damaged, or of another version: its checksum is wrong")
    if not fits(content, form):
        raise PipelineError(f"{path} has unexpected content: another version or program wrote it")
    return content


def fits(content: Json, form: Form) -> bool:
    """Whether `content` has a `form`: a type (`float` includes ints), a tuple of alternatives, `[form]` for a list,
    `{name: form, ...}` for a mapping with at least these keys, or `{str: form}` if all values have one form."""
    if isinstance(form, tuple):
        return any(fits(content, one) for one in form)
    if isinstance(form, list):
        return isinstance(content, list) and all(fits(item, form[0]) for item in content)
    if isinstance(form, dict):
        named = {name: part for name, part in form.items() if name is not str}
        return (
            isinstance(content, dict)
            and all(name in content and fits(content[name], part) for name, part in named.items())
            and (str not in form or all(fits(value, form[str]) for value in content.values()))
        )
    return type(content) is form or (form is float and type(content) is int)


def digest(content: Json) -> str:
    """SHA-256 of a JSON value, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def sync_directory(path: Path) -> None:
    """Make renames inside `path` durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def reserve(path: Path, size: int) -> None:
    """Allocate `size` bytes on disk for `path`, so that a full disk is an error now. Otherwise a write through a memory
    map could kill the process later."""
    try:
        with path.open("r+b") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:  # macOS: write the missing bytes
                file.seek(0, os.SEEK_END)
                while (missing := size - file.tell()) > 0:
                    file.write(bytes(min(missing, 1 << 24)))
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
        except OSError as error:
            raise PipelineError(f"another run is writing to {directory}: wait for it, or give another name=") from error
        yield
