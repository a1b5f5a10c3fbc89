"""Identity of a run. Each file that a program reads again names its program, run and step, so misplaced files are
refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from icrl.config.options import walk
from icrl.contracts import ConfigError, Json, PipelineError
from icrl.runs.files import Form, digest, read_json, write_json

if TYPE_CHECKING:
    from icrl.config.root import Config
    from icrl.point_game.options import PlayersConfig

_OWNER = {"program": str, "run": str, "step": int}


class Identity(NamedTuple):
    """Program and digest that identify a run."""

    program: str
    run: str  # digest of options and inputs that affect results; not of name or folder

    def __str__(self) -> str:
        return f"{self.program} (run {self.run[:12]})"

    @classmethod
    def of(cls, described: Json) -> Identity:
        """Identity in the description beside a checkpoint."""
        return cls(str(described.get("program")), str(described.get("run")))


def identity_of(
    program: str, config: Config | PlayersConfig, groups: Collection[str], inputs: Json | None = None
) -> Identity:
    """Identity of the run of `program` with `config`: its options in `groups`, without those that `may_change` when it
    resumes, and checksums of its `inputs`."""
    options = {
        key: value for key, value, field in walk(config) if key.partition(".")[0] in groups and not field.may_change
    }
    return Identity(program, digest(_plain({"program": program, "options": options, "inputs": inputs or {}})))


def check_owner(path: Path, found: Identity, expected: Identity) -> None:
    """Raise `PipelineError` unless the run `found` in the file `path` is the `expected` one."""
    if found != expected:
        raise PipelineError(
            f"{path} is from {found}, but {expected} is needed here: restore the right file, or remove this one"
        )


def write_owned(path: Path, owner: Identity, step: int, content: Json) -> None:
    """Write a mapping as `write_json` does, with its owner and step."""
    write_json(path, content | {"owner": owner._asdict() | {"step": step}})


def read_owned(path: Path, form: Form) -> tuple[Json, Identity, int]:
    """Content, owner and step written by `write_owned`, checked against `form` (see `files.fits`). Raises
    `PipelineError` with the name of a file that is missing, damaged or of another form."""
    content = read_json(path, {"owner": _OWNER, **form})
    owner = content.pop("owner")
    return content, Identity(owner["program"], owner["run"]), owner["step"]


def _plain(value: Any) -> Any:
    """Value with whole floats as ints, because an option may be written either way."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_same(config: Config | PlayersConfig, recorded: Json, sections: Iterable[str], where: str) -> None:
    """Raise `ConfigError` unless `config` equals the `recorded` one (as `dataclasses.asdict` gives it) in `sections`.

    All stages of a run take the same options, so each is compared with the record of the stage before it. Options that
    `may_change` are not compared."""
    for key, value, field in walk(config):
        section, _, leaf = key.partition(".")
        if section not in sections or field.may_change:
            continue
        before = recorded.get(section)
        if leaf:
            before = before.get(leaf) if isinstance(before, dict) else None
        if before != value:
            raise ConfigError(
                f"{where} was made with {key}={before}, but this configuration has {value}: "
                f"give {key}={before} here too, or another name="
            )
