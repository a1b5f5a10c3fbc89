"""The shape of the code: imports point down, files and functions stay short."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parent.parent / "src"
FILES = sorted(SRC.rglob("*.py"))
LAYERS = [
    {
        *(
            "config",
            "conflicts",
            "contracts",
            "env_schema",
            "files",
            "identity",
            "memory",
            "options",
            "outputs",
            "pace",
            "net_layers",
            "players_conflicts",
            "players_schema",
            "processes",
            "randomness",
            "runtime",
        ),
        *(
            "schedules",
            "schema",
            "steps",
            "source_conflicts",
            "offline_conflicts",
            "offline_schema",
            "training_conflicts",
            "training_schema",
            "world_conflicts",
        ),
    },
    {"envs", "rl", "nn"},
    {"sources", "data", "objectives"},
    {"training"},
    {"evaluation"},
]
ENTRY_POINTS = len(LAYERS)


def layer(part: str) -> int:
    """The layer of a folder of src/ or of a file right in it; a file that is no library is an entry point."""
    for number, parts in enumerate(LAYERS):
        if part in parts:
            return number
    assert not (SRC / part).is_dir(), f"src/{part} has no layer: add it to LAYERS"
    return ENTRY_POINTS


def part_of(path: Path) -> str:
    return path.relative_to(SRC).with_suffix("").parts[0]


def imported_parts(source: str) -> Iterator[str]:
    """What a file imports of src/: names of folders and of files right in it."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute, so that they can be searched for"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name.split(".")[1] for name in names if name.startswith("src."))


def may_import(here: str, there: str) -> bool:
    """A lower layer, one's own folder, and layer 0 within itself."""
    return here == there or layer(there) < layer(here) or layer(here) == layer(there) == 0


def test_imports_are_found_in_every_form() -> None:
    source = "import icrl.nn.gpt as g, torch\nfrom src import config\ndef f():\n    from icrl.rl.returns import x, y\n"
    assert sorted(imported_parts(source)) == ["config", "nn", "rl", "rl"]


@pytest.mark.parametrize(
    ("here", "there", "allowed"),
    [
        ("training", "nn", True),
        ("nn", "training", False),
        ("nn", "nn", True),
        ("nn", "rl", False),
        ("sources", "data", False),
        ("runtime", "config", True),
        ("config", "envs", False),
        ("train_gpt", "evaluation", True),
        ("train_gpt", "train_agents", False),
        ("evaluation", "train_gpt", False),
    ],
)
def test_the_rule_tells_right_from_wrong(here: str, there: str, *, allowed: bool) -> None:
    assert may_import(here, there) == allowed


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_imports_point_down(path: Path) -> None:
    here = part_of(path)
    wrong = [there for there in imported_parts(path.read_text()) if not may_import(here, there)]
    assert not wrong, f"src/{path.relative_to(SRC)} imports {wrong}, not below it"


def test_layer_zero_has_no_folder_and_every_layer_exists() -> None:
    found = {part_of(path) for path in FILES}
    assert set().union(*LAYERS) <= found
    assert not any((SRC / part).is_dir() for part in LAYERS[0])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_files_and_functions_are_short(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) < 300
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno is not None and node.end_lineno - node.lineno + 1 < 60, node.name
