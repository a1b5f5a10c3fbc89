"""Deletion of an extension: without its folder the core and the other extensions work, and say what is missing.

Imports between them are in `test_layers.py`."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from icrl import extensions
from icrl.app.compose import CONF, groups_of, load_config
from icrl.app.root import CHOICES, Config
from icrl.config.options import walk
from icrl.nn.transformer import TRUNKS
from icrl.sources.heads import BODIES

PROJECT = Path(__file__).resolve().parent.parent
LINKED = ("docs", "notebooks", "README.md", "mkdocs.yml", "Makefile")
# Run in a copy of the project, with the extension and what it had as JSON: prints what is wrong, a line for each.
CHECK = """
import contextlib, importlib, io, json, pkgutil, re, runpy, sys
from pathlib import Path
import pytest

name, had, collects = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]

def ended(work):
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = work()
        except SystemExit as end:
            code = end.code
    return code, out.getvalue(), err.getvalue()

def program(module, *options):
    sys.argv = [module, *options]
    return ended(lambda: runpy.run_module(f"src.{module}", run_name="__main__") and 0)

import icrl
from icrl import extensions
from icrl.app.compose import compose_config, load_config
from icrl.app.root import Config
from icrl.contracts import ConfigError

if {*had["extensions"]} & {*extensions.NAMES} or extensions.FOLDER.parents[2] != Path.cwd():
    print("the extension is still there:", extensions.FOLDER)
for found in pkgutil.walk_packages(icrl.__path__, "icrl."):
    if found.name.startswith("icrl.extensions.") or found.name.rpartition(".")[2].startswith("__"):
        continue
    try:
        importlib.import_module(found.name)
    except ImportError as error:
        if (error.name or "icrl").partition(".")[0] == "icrl":  # not an optional package
            print(found.name, "is not imported:", error)
    except ConfigError as error:
        if " needs the package " not in str(error):
            print(found.name, "is not imported:", error)
code, out, err = program("train_agents", "--help", "all")
if code or err or len(out.splitlines()) < 300:
    print("--help all ended with", code, err)
for word in had["words"]:
    if re.search(rf"(?<![\\w.]){re.escape(word)}\\b", out):
        print("--help all has", word)
for one in had["programs"]:
    code, out, err = program(one)
    if code != 2 or len(err.splitlines()) != 1 or name not in err or out:
        print(one, "ended with", code, out, err)
for one in had["options"]:
    try:
        load_config([one])
        print(one, "is taken")
    except ConfigError as error:
        if one.partition("=")[0] not in str(error) or "\\n" in str(error):
            print(one, "is refused without its name:", error)
        elif one in had["chosen"] and not (str(error).startswith(one) and "extension" in str(error)):
            print(one, "is refused without a word about extensions:", error)
for group, preset in had["kept"]:
    load_config([f"{group}={preset}"])
for options in {getattr(importlib.import_module(one), "OPTIONS", Config) for one in extensions.programs().values()}:
    compose_config(options, [])
collect = ["--collect-only", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
code, out, err = ended(lambda: pytest.main([*collect, "tests"])) if collects else (0, "", "")
if code or any(f"tests/extensions/{one}/" in out for one in had["extensions"]):
    print("tests are not collected:", code, out[-3000:], err)
"""


# Runs the check in each copy, in a fork of a process that has the packages that the library needs, which take longest
# to import: [folder, arguments] as JSON, for each. Prints what is wrong by folder.
CHECKS = """
import json, os, sys
import gymnasium, hydra, imageio_ffmpeg, IPython.display, matplotlib.figure, optuna, PIL.Image, pydantic, pytest
import functools, omegaconf.base, safetensors.torch, torch._dynamo, torch.utils.tensorboard, tqdm

omegaconf.base.parse = functools.cache(omegaconf.base.parse)

check, jobs = json.load(sys.stdin)
wrong = {}
for folder, arguments in jobs:
    out = open(f"{folder}/wrong", "w+")
    if not (child := os.fork()):
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
        os.chdir(folder)
        sys.path[:0] = [f"{folder}/src", folder]
        sys.argv[1:] = arguments
        exec(check, {"__name__": "check"})
        sys.stdout.flush()
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    out.seek(0)
    wrong[folder] = out.read() + (f"ended with {code}" if code else "")
json.dump(wrong, sys.stdout)
"""


def without(name: str, copy: Path, *folders: str) -> Path:
    """`copy` of some folders of the project, without that of the extension `name`."""
    for folder in folders:
        shutil.copytree(PROJECT / folder, copy / folder, ignore=shutil.ignore_patterns("results", "__pycache__"))
    shutil.copy(PROJECT / "pyproject.toml", copy)
    for linked in LINKED:
        (copy / linked).symlink_to(PROJECT / linked)
    shutil.rmtree(copy / "src/icrl/extensions" / name)
    return copy


def run(copy: Path, *arguments: str, given: str = "") -> str:
    """Output of Python in the copy, which must end well."""
    environment = os.environ | {"PYTHONPATH": f"{copy}/src", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    ran = subprocess.run(command, cwd=copy, env=environment, input=given, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return ran.stdout


def wrong_in(copies: dict[str, Path], *collects: str) -> dict[str, str]:
    """What `CHECK` finds wrong, by extension."""
    jobs = [(str(copy), [name, json.dumps(had_by(name)), *collects]) for name, copy in copies.items()]
    found = json.loads(run(PROJECT, "-c", CHECKS, given=json.dumps([CHECK, jobs])))
    return {name: found[str(copy)].strip() for name, copy in copies.items()}


def had_by(name: str) -> dict[str, Any]:
    """What an extension has that no other has, with the `extensions` that build on it: `options` that choose one of its
    choices or presets or set one of its options, those of them that are `chosen` by name, its `programs`, and `words`
    that stand for these in help; and presets that stay, `kept`, though their text names a part of the extension."""
    names = [name, *(other for other in extensions.NAMES if name in extensions.needs(other))]
    packages, folders = tuple(f"icrl.extensions.{one}." for one in names), [extensions.FOLDER / one for one in names]
    choices = {
        (group, one)
        for group, found in CHOICES.items()
        for one, options in found().items()
        if group in Config.model_fields and options.__module__.startswith(packages)
    }
    others = [
        path
        for conf in (CONF, *extensions.preset_folders())
        for path in conf.glob("*/*.yaml")
        if conf.parent not in folders and path.parent.name in groups_of(Config)
    ]
    presets = {(path.parent.name, path.stem) for folder in folders for path in folder.glob("conf/*/*.yaml")}
    keys = {
        key
        for group, field in Config.model_fields.items()
        if getattr(field.default_factory, "__module__", "").startswith(packages)
        for key, _, _ in walk(load_config())
        if key.startswith(f"{group}.")
    }
    programs = [path.stem for folder in folders for path in folder.glob("programs/[a-z]*.py")]
    chosen = [f"{group}={one}" for group, one in sorted(choices | presets)]
    plain = [f"{group}.name={one}" for group, one in sorted(choices)]
    named = {one for one in (*names, *programs, *(one for _, one in choices | presets)) if "_" in one}
    registered = [("model.trunk", TRUNKS), ("source.body", BODIES)]
    plain += [f"{key}={one}" for key, of in registered for one in of if of[one].__module__.startswith(packages)]
    parts = {*names, *keys, *(one for group, one in choices | presets if group in groups_of(Config))}
    named_part = re.compile(rf"\b({'|'.join(map(re.escape, parts))})\b")
    of_config = [one for one in chosen if one.partition("=")[0] in groups_of(Config)]
    return {
        "extensions": names,
        "chosen": [*of_config, *plain],
        "options": [*chosen, *plain, *sorted(keys)],
        "programs": programs,
        "words": [*chosen, *plain, *sorted(keys | named)],
        "kept": sorted((path.parent.name, path.stem) for path in others if named_part.search(path.read_text())),
    }


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return wrong_in({name: without(name, tmp_path_factory.mktemp("without"), "src") for name in extensions.NAMES})


@pytest.mark.parametrize("name", extensions.NAMES)
def test_what_is_left_works_and_says_what_is_missing(wrong: dict[str, str], name: str) -> None:
    assert not wrong[name]


@pytest.mark.long
@pytest.mark.parametrize("name", extensions.NAMES)
def test_all_other_tests_are_collected_and_the_quick_ones_pass(tmp_path: Path, name: str) -> None:
    copy = without(name, tmp_path, "src", "tests", "benchmarks", "examples")
    assert not wrong_in({name: copy}, "collect")[name]
    assert re.search(r"\d+ passed", run(copy, "-m", "pytest", "-q", "-m", "quick", "-n", "0", "tests"))
