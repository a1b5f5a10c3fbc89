"""What is wrong with the library where extensions are missing; see `deletion`."""

import contextlib
import importlib
import io
import pkgutil
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import icrl
from icrl import extensions
from icrl.app.compose import compose_config, load_config
from icrl.app.root import Config
from icrl.contracts import ConfigError

COLLECT = ("--collect-only", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")


def wrong(names: list[str], had: dict[str, Any], collects: bool) -> str:
    """A line for each thing that is wrong without the extensions `names`. `had`: see `had_by` of the test."""
    found = [*_at_import(), *_in_help(had["words"]), *_at_programs(names, had["programs"]), *_with_options(had)]
    if {*had["extensions"]} & {*extensions.NAMES} or extensions.FOLDER.parents[2] != Path.cwd():
        found.append(f"the extension is still there: {extensions.FOLDER}")
    if collects:
        code, out, err = _ended(lambda: pytest.main([*COLLECT, "tests"]))
        if code or any(f"tests/extensions/{one}/" in out for one in had["extensions"]):
            found.append(f"tests are not collected: {code} {out[-3000:]} {err}")
    return "\n".join(found)


def _ended(work: Callable[[], Any]) -> tuple[Any, str, str]:
    """Status, output and errors of a program."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = work()
        except SystemExit as end:
            code = end.code
    return code, out.getvalue(), err.getvalue()


def _program(name: str, *options: str) -> tuple[Any, str, str]:
    sys.argv = [name, *options]
    return _ended(lambda: runpy.run_module(f"src.{name}", run_name="__main__") and 0)


def _at_import() -> Iterator[str]:
    for found in pkgutil.walk_packages(icrl.__path__, "icrl."):
        if found.name.startswith("icrl.extensions.") or found.name.rpartition(".")[2].startswith("__"):
            continue
        try:
            importlib.import_module(found.name)
        except ImportError as error:
            if (error.name or "icrl").partition(".")[0] == "icrl":  # not an optional package
                yield f"{found.name} is not imported: {error}"
        except ConfigError as error:
            if " needs the package " not in str(error):
                yield f"{found.name} is not imported: {error}"


def _in_help(words: list[str]) -> Iterator[str]:
    code, out, err = _program("train_agents", "--help", "all")
    if code or err or len(out.splitlines()) < 300:
        yield f"--help all ended with {code} {err}"
    for word in words:
        if re.search(rf"(?<![\w.]){re.escape(word)}\b", out):
            yield f"--help all has {word}"


def _at_programs(names: list[str], programs: list[str]) -> Iterator[str]:
    for one in programs:
        code, out, err = _program(one)
        if code != 2 or len(err.splitlines()) != 1 or not any(f"the extension {name}," in err for name in names) or out:
            yield f"{one} ended with {code} {out} {err}"


def _with_options(had: dict[str, Any]) -> Iterator[str]:
    for one in had["options"]:
        try:
            load_config([one])
            yield f"{one} is taken"
        except ConfigError as error:
            if one.partition("=")[0] not in str(error) or "\n" in str(error):
                yield f"{one} is refused without its name: {error}"
            elif one in had["chosen"] and not (str(error).startswith(one) and "extension" in str(error)):
                yield f"{one} is refused without a word about extensions: {error}"
    for group, preset in had["kept"]:
        load_config([f"{group}={preset}"])
    for program in extensions.programs().values():
        options = getattr(importlib.import_module(program), "OPTIONS", Config)
        if options.page in had["pages"]:
            compose_config(options, [])
