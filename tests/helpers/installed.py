"""Extensions that have tests, or a program in `src/`, and are not installed; marks of tests that need one."""

import re
from pathlib import Path

import pytest

from icrl import extensions

TESTS = Path(__file__).resolve().parent.parent
_TESTED = {path.name for path in (TESTS / "extensions").glob("[a-z]*") if path.is_dir()}
_RUN = [re.search(r"run\(\"\w+\", \"(\w+)\"\)", path.read_text()) for path in (TESTS.parent / "src").glob("*.py")]
ABSENT = (_TESTED | {found[1] for found in _RUN if found}) - {*extensions.NAMES}


def needs(name: str) -> pytest.MarkDecorator:
    """Mark of a test that needs the extension `name`."""
    return pytest.mark.skipif(name not in extensions.NAMES, reason=f"the extension {name} is not installed")
