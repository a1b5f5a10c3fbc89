"""Optional parts, one folder each; the core imports none of them, so each can be deleted.

An extension registers what it adds in the same way as a package of the user's own. `NAME/__init__.py` is imported with
`icrl`, stays light, and may register Gymnasium ids. `NAME/plugin.py`, if there is one, imports the modules with
registered classes, before a configuration is made. Programs are in `NAME/programs/*.py`, presets in `NAME/conf/`,
functions that presets call in `NAME/resolvers.py`, tests in `tests/extensions/NAME/`. An extension that builds on
others has `NEEDS = ("other",)` in its `__init__.py`, and is left out if one of them is missing.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent


def needs(name: str) -> tuple[str, ...]:
    """The extensions that the one in the folder `name` builds on. Nothing is imported."""
    lines = ast.parse((FOLDER / name / "__init__.py").read_text()).body
    found = [line.value for line in lines if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "NEEDS"]
    return ast.literal_eval(found[0]) if found else ()


def missing(name: str) -> str:
    """The extension that is not there: `name`, or one that it builds on; "" if none is missing."""
    if not (FOLDER / name / "__init__.py").exists():
        return name
    return next((lost for other in needs(name) if (lost := missing(other))), "")


NAMES = sorted(path.parent.name for path in FOLDER.glob("*/__init__.py") if not missing(path.parent.name))


def load_light() -> None:
    """Import every extension, without the modules with registered classes."""
    for name in NAMES:
        import_module(f"{__name__}.{name}")


def load_all() -> None:
    """Import the modules of every extension that register classes."""
    for name in NAMES:
        if (FOLDER / name / "plugin.py").exists():
            import_module(f"{__name__}.{name}.plugin")


def preset_folders() -> list[Path]:
    """Folders with presets, `<group>/<name>.yaml` each."""
    return [FOLDER / name / "conf" for name in NAMES if (FOLDER / name / "conf").is_dir()]


def resolvers() -> dict[str, Any]:
    """Functions by which presets of the extensions make a value follow from others."""
    named = [name for name in NAMES if (FOLDER / name / "resolvers.py").exists()]
    return {key: one for name in named for key, one in import_module(f"{__name__}.{name}.resolvers").RESOLVERS.items()}


def programs() -> dict[str, str]:
    """Module of each program by its name."""
    files = [path for path in FOLDER.glob("*/programs/[a-z]*.py") if path.parent.parent.name in NAMES]
    return {path.stem: f"{__name__}.{path.parent.parent.name}.programs.{path.stem}" for path in files}
