"""Code, commands and tables of the documentation."""

import re
import shlex
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import pytest
from installed import ABSENT

from icrl.__main__ import PROGRAMS
from icrl.app.compose import compose_config, presets_of
from icrl.app.root import Config
from icrl.runs.files import PROJECT

PAGES = [PROJECT / "README.md", *(page for page in sorted((PROJECT / "docs").glob("*.md")) if page.stem not in ABSENT)]
# The reader's own names, or an ellipsis; sentences in which no option follows the program
OWN = re.compile(r"\.\.\.|[=|][A-Z]{1,5}\b|\bWORLD\b|\||my_presets|my_histories|'?env.id=examples.cliffs")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def run_blocks(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch, **names: object) -> dict[str, object]:
    """Names that the Python blocks of a page leave, run in `folder`, one after the other."""
    monkeypatch.chdir(folder)
    found = {"__name__": "__main__", **names}
    for block in blocks(PROJECT / page, "python"):
        exec(compile(block, page, "exec"), found)
    return found


def commands() -> dict[str, Path]:
    """Commands of all pages with the first page that gives each: in blocks over several lines, in text up to the
    closing backtick. Pages of extensions that are not installed are left out."""
    found: dict[str, Path] = {}
    for page in PAGES:
        text = re.sub(r" *\\\n *", " ", page.read_text(encoding="utf-8"))
        for command in re.findall(r"python -m (src\.\w+ +\w[^`\n]*=[^`\n]*)", text):
            found.setdefault(command.partition("  #")[0].strip(), page)
        for arguments in re.findall(r"make run ARGS=\"([^\"]+)\"", text):
            found.setdefault(f"src.pipeline {arguments}", page)
    return {command: page for command, page in found.items() if not OWN.search(command)}


def check_command(command: str) -> None:
    """The program exists, and takes these options."""
    name, *options = shlex.split(command)
    assert (PROJECT / f"{name.replace('.', '/')}.py").exists()
    if name == "src.study" and len(options) == 1:  # its tests compose all runs
        assert options[0].removeprefix("study=") in presets_of("study")
        return
    compose_config(getattr(import_module(PROGRAMS[name.removeprefix("src.")]), "OPTIONS", Config), options)


def rows_of(page: str, heading: str) -> list[list[str]]:
    """Cells of the rows of the table under the `heading` of a page."""
    text = (PROJECT / "docs" / page).read_text()
    table = text[text.index(heading) :].split("\n|---")[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()[1:]]


def check_options_of_table(rows: Iterable[list[str]], known: set[str]) -> None:
    """All options that the `rows` of a table name are `known`."""
    for row in rows:
        for name in re.findall(r"`([a-z]+\.[a-z0-9_]+)(?:=[^`]*)?`", " ".join(row[1:])):
            assert name in known or Path(name).suffix in (".md", ".py") or name.startswith("train/"), name
        for group in re.findall(r"`([a-z]+)\.`", row[1]):
            assert any(key.startswith(f"{group}.") for key in known), group
