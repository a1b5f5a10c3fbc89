"""Shape of the library: imports point down, the core knows no extension, folders stay small."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from installed import ABSENT

from icrl import extensions

PROJECT = Path(__file__).resolve().parent.parent
ICRL = PROJECT / "src" / "icrl"
HELPERS = {path.stem: path for path in (PROJECT / "tests/helpers").glob("*.py")}
FILES = sorted(ICRL.rglob("*.py"))
# Lowest first; a module imports from its own folder and from those before it. The root of all options, in app/,
# holds those of every room, so it stands above them; they name it in annotations alone.
LAYERS = (
    *("spaces", "contracts", "randomness", "config", "runs", "envs", "rl", "nn", "data", "objectives", "sources"),
    *("training", "evaluation", "plots", "app", "recording"),
    *("programs", "api", "__main__", "__init__", "extensions"),
)
VAGUE = ("What", "Who", "Whom", "Whoever", "Of", "Where", "That")


def layer(module: str) -> int:
    """Index in LAYERS of a dotted module name below `icrl`."""
    folder = module.partition(".")[0]
    if module.removesuffix(".__init__") == "extensions":  # finds the extensions, and knows none of them
        return 0
    return LAYERS.index(folder)


def imported(source: str) -> Iterator[str]:
    """Names below `icrl` that a file imports when it runs."""
    yield from (name.removeprefix("icrl.") for name in all_imported(source) if name.startswith("icrl."))


@cache
def all_imported(source: str) -> list[str]:
    """Names that a file imports when it runs. Imports for annotations alone are left out, and those where an extension
    is installed."""
    nodes = [*ast.walk(ast.parse(source))]
    conditions = ("TYPE_CHECKING", " in extensions.NAMES")
    left_out = {
        id(node)
        for test in (nodes if any(one in source for one in conditions) else ())
        if isinstance(test, ast.If) and ast.unparse(test.test).endswith(conditions)
        for part in test.body
        for node in ast.walk(part)
    }
    names = list[str]()
    for node in nodes:
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute, so that they can be searched for"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


@cache
def extensions_in(path: Path) -> set[str]:
    """Extensions that a file imports, itself or through helpers of tests."""
    found = set[str]()
    for there in all_imported(path.read_text()):
        if there.startswith("icrl.extensions."):
            found.add(there.split(".")[2])
        elif helper := HELPERS.get(there.removeprefix("tests.helpers.").partition(".")[0]):
            found |= extensions_in(helper)
    return found & {*extensions.NAMES}


def test_imports_are_found_in_every_form_but_for_annotations() -> None:
    source = (
        "import icrl.nn.gpt as g, torch\nfrom icrl import runs\nif TYPE_CHECKING:\n    from icrl.app.root import C\n"
        "def f():\n    from icrl.rl.returns import x, y\n"
    )
    assert sorted(imported(source)) == ["nn.gpt", "rl.returns.x", "rl.returns.y", "runs"]


def test_imports_point_down() -> None:
    for path in FILES:
        here = layer(".".join(path.relative_to(ICRL).with_suffix("").parts))
        wrong = [there for there in imported(path.read_text()) if layer(there) > here]
        assert not wrong, path


def test_folders_are_small() -> None:
    for folder in {path.parent for path in FILES}:
        assert len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) <= 12, folder


def test_every_folder_is_a_package() -> None:
    """Others are not installed."""
    assert not {path.parent for path in FILES if not (path.parent / "__init__.py").exists()}


def test_presets_of_extensions_have_names_of_their_own() -> None:
    files = [path for folder in (ICRL / "conf", *extensions.preset_folders()) for path in folder.rglob("*.yaml")]
    names = [path.relative_to(path.parent.parent) for path in files if path.parent.name != "conf"]
    assert len({*names}) == len(names) > 50


def test_the_core_knows_no_extension() -> None:
    """No file imports an extension but those in its folders, and those that it builds on: of code, tests, benchmarks.
    Helpers of its tests may, and a notebook may show two extensions."""
    for folder in ("src", "tests", "benchmarks", "examples", "docs"):
        for path in {*(PROJECT / folder).rglob("*.py")} - {*HELPERS.values()}:
            own = {*path.relative_to(PROJECT).parts[:-1]}
            own |= {other for name in own & {*extensions.NAMES} for other in extensions.needs(name)}
            assert own & ABSENT or extensions_in(path) <= own, path
    for path in (PROJECT / "notebooks").glob("*.ipynb"):
        assert len({*re.findall(r"icrl\.extensions\.(\w+)", path.read_text())}) <= 2, path


def test_docstrings_name_the_thing() -> None:
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
                first = (ast.get_docstring(node) or "").split(" ")[0].rstrip(",:")
                assert first not in VAGUE, (path, ast.get_docstring(node))
