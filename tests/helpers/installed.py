"""Extensions that have tests, or a program in `src/`, and are not installed."""

import re
from pathlib import Path

from icrl import extensions

TESTS = Path(__file__).resolve().parent.parent
_TESTED = {path.name for path in (TESTS / "extensions").glob("[a-z]*") if path.is_dir()}
_RUN = [re.search(r"run\(\"\w+\", \"(\w+)\"\)", path.read_text()) for path in (TESTS.parent / "src").glob("*.py")]
ABSENT = (_TESTED | {found[1] for found in _RUN if found}) - {*extensions.NAMES}
