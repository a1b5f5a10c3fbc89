"""Extensions: all that the core does not know of. Each is a folder here, which can be deleted.

An extension registers what it adds as a package of the user's own does. `NAME/__init__.py` is imported with `icrl`,
stays light, and may register Gymnasium ids; `NAME/plugin.py`, if there is one, imports the modules with registered
classes, before a configuration is made. Its programs are `NAME/programs/*.py`, its presets `NAME/conf/`, its tests
`tests/extensions/NAME/`.
"""

from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/__init__.py"))


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


def programs() -> dict[str, str]:
    """Module of each program by its name."""
    files = [path for path in FOLDER.glob("*/programs/[a-z]*.py") if path.parent.parent.name in NAMES]
    return {path.stem: f"{__name__}.{path.parent.parent.name}.programs.{path.stem}" for path in files}
