"""Deletion of extensions: without their folders the core and the other extensions work, and say what is missing.

Imports between them are in `test_layers.py`."""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import deletion
import pytest

from icrl import extensions
from icrl.app.compose import CONF, groups_of, load_config
from icrl.app.root import CHOICES, Config
from icrl.config.options import walk
from icrl.nn.heads import HEADS
from icrl.nn.transformer import TRUNKS
from icrl.sources.heads import BODIES

PROJECT = Path(__file__).resolve().parent.parent
KEYS = [key for key, _, _ in walk(load_config())]
LINKED = ("docs", "notebooks", "README.md", "mkdocs.yml", "Makefile")


def run(copy: Path, *arguments: str, given: str = "") -> str:
    """Output of Python in the copy, which must end well."""
    settings = {"PYTHONPATH": f"{copy}/src:{copy}", "PYTHONDONTWRITEBYTECODE": "", "OMP_NUM_THREADS": "1"}
    command, environment = [sys.executable, *arguments], os.environ | settings
    ran = subprocess.run(command, cwd=copy, env=environment, input=given, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return ran.stdout


def wrong_in(copy: Path, groups: list[list[str]], collects: bool = False) -> dict[str, str]:
    """What `helpers/without.py` finds wrong without each group of extensions, by their names."""
    arguments = [(group, had_by(group), collects) for group in groups]
    return json.loads(run(copy, deletion.__file__, given=json.dumps(arguments)))


def with_those_on(name: str) -> list[str]:
    """The extension, and those that build on it or on one of these."""
    direct = [other for other in extensions.NAMES if name in extensions.needs(other)]
    return [*dict.fromkeys([name, *(one for other in direct for one in with_those_on(other))])]


def hidden_together() -> list[list[str]]:
    """Groups of extensions, few and large, so that for any two of them that do not build on each other one is missing
    while the other works. With an extension those that build on it are missing."""
    missing_with = {name: {*with_those_on(name)} for name in extensions.NAMES}
    left = {(one, other) for other, gone in missing_with.items() for one in missing_with if one not in gone}
    groups = []
    while left:
        group: set[str] = set()
        tried: set[tuple[str, str]] = set()
        for name in sorted(missing_with, key=lambda name: -len(missing_with[name])):
            larger = group | missing_with[name]
            separated = {(one, other) for one, other in left if other in larger and one not in larger}
            if len(separated) > len(tried):
                group, tried = larger, separated
        groups.append(sorted(group))
        left -= tried
    return groups


@cache
def uncommented(preset: Path) -> str:
    return re.sub("#.*", "", preset.read_text())


def had_by(group: list[str]) -> dict[str, Any]:
    """What these extensions have that no other has, with the `extensions` that build on them: `options` that choose one
    of their choices or presets or set one of their options, those of them that are `chosen` by name, their `programs`,
    and `words` that stand for these in help; and of the presets that stay those whose text names a part of these
    extensions: `kept` presets of groups, and `pages` that choose presets."""
    names = [*dict.fromkeys(one for name in group for one in with_those_on(name))]
    packages, folders = tuple(f"icrl.extensions.{one}." for one in names), [extensions.FOLDER / one for one in names]
    choices = {
        (group, one)
        for group, found in CHOICES.items()
        for one, options in found().items()
        if group in Config.model_fields and options.__module__.startswith(packages)
    }
    confs = [conf for conf in (CONF, *extensions.preset_folders()) if conf.parent not in folders]
    presets = {(path.parent.name, path.stem) for folder in folders for path in folder.glob("conf/*/*.yaml")}
    keys = {
        key
        for group, field in Config.model_fields.items()
        if getattr(field.default_factory, "__module__", "").startswith(packages)
        for key in KEYS
        if key.startswith(f"{group}.")
    }
    programs = [path.stem for folder in folders for path in folder.glob("programs/[a-z]*.py")]
    chosen = [f"{group}={one}" for group, one in sorted(choices | presets)]
    plain = [f"{group}.name={one}" for group, one in sorted(choices)]
    named = {one for one in (*names, *programs, *(one for _, one in choices | presets)) if "_" in one}
    registered = [("model.trunk", TRUNKS), ("model.head", HEADS), ("source.body", BODIES)]
    registered_as = [(f"{key}={one}", made) for key, of in registered for one, made in of.items() if made]
    plain += [option for option, made in registered_as if made.__module__.startswith(packages)]
    resolvers = {
        key
        for one in names
        if (extensions.FOLDER / one / "resolvers.py").exists()
        for key in import_module(f"icrl.extensions.{one}.resolvers").RESOLVERS
    }
    parts = {*names, *keys, *(one for group, one in choices | presets if group in groups_of("config"))}
    named_part = re.compile(rf"\b({'|'.join(map(re.escape, parts))})\b|\$\{{({'|'.join(resolvers) or '-'}):")

    def naming(pattern: str) -> list[Path]:
        return sorted(path for conf in confs for path in conf.glob(pattern) if named_part.search(uncommented(path)))

    of_config = [one for one in chosen if one.partition("=")[0] in groups_of("config")]
    return {
        "extensions": names,
        "chosen": [*of_config, *plain],
        "options": [*chosen, *plain, *sorted(keys)],
        "programs": programs,
        "words": [*chosen, *plain, *sorted(keys | named)],
        "kept": [(path.parent.name, path.stem) for group in groups_of("config") for path in naming(f"{group}/*.yaml")],
        "pages": [path.stem for path in naming("*.yaml")],
    }


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy of the project, in which folders of extensions can be hidden."""
    copy = tmp_path_factory.mktemp("copy")
    for folder in ("src", "tests", "benchmarks", "examples"):  # without what other processes compile now
        shutil.copytree(PROJECT / folder, copy / folder, ignore=shutil.ignore_patterns("results", "*.pyc.*"))
    shutil.copy(PROJECT / "pyproject.toml", copy)
    for linked in LINKED:
        (copy / linked).symlink_to(PROJECT / linked)
    return copy


def test_what_is_left_works_and_says_what_is_missing(copy: Path) -> None:
    found = wrong_in(copy, hidden_together())
    assert found and not any(found.values()), "\n".join(filter(None, found.values()))


@pytest.mark.long
@pytest.mark.parametrize("name", extensions.NAMES)
def test_all_other_tests_are_collected_and_the_quick_ones_pass(copy: Path, name: str) -> None:
    assert not wrong_in(copy, [[name]], collects=True)[name]
    with deletion.hidden(copy, [name]):
        assert re.search(r"\d+ passed", run(copy, "-m", "pytest", "-q", "-m", "quick", "-n", "0", "tests"))
