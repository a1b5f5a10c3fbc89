"""Base folders of relative paths."""

from pathlib import Path

_CLONE = Path(__file__).resolve().parents[3]
PROJECT = _CLONE if (_CLONE / "pyproject.toml").exists() else Path.cwd()  # where installed: the current folder
