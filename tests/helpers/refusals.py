"""Refusals that are listed in a file: each line a command line and what its one-line error must name."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from icrl.config.options import Options, walk
from icrl.contracts import ConfigError


def refusals(path: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """(section, overrides, what the error names) of each line of `path`."""
    section = ""
    for line in filter(None, path.read_text().splitlines()):
        if line.startswith("["):
            section = line.strip("[]")
        else:
            overrides, named = line.split("  =>  ")
            yield section, overrides.split("  "), named.split("  &  ")


def check_refusal(load: Callable[[list[str]], object], overrides: list[str], named: Iterable[str]) -> None:
    """`load` refuses the `overrides` in one line that names all of `named`."""
    with pytest.raises(ConfigError) as refused:
        load(overrides)
    message = str(refused.value)
    assert "\n" not in message and all(part in message for part in named), message


def check_table(text: str, config: Options) -> None:
    """A table of the Markdown `text` has every option of `config`, with its meaning and stages."""
    lines = text.replace("\\|", "|").splitlines()
    for key, _, option in walk(config):
        rows = [line.split(" | ") for line in lines if f"{option.meaning} | " in line]
        assert any(f"`{key}`" in row[0] and option.stages in row[4] for row in rows), key
        assert len(option.meaning) > 3 and option.stages and option.meaning != key
