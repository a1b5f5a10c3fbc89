"""Extensions that have tests, or a program in `src/`, and are not installed; marks of tests that need one."""

import re
from pathlib import Path

import pytest

from icrl import extensions
from icrl.app.compose import CONF

TESTS = Path(__file__).resolve().parent.parent
_TESTED = {path.name for path in (TESTS / "extensions").glob("[a-z]*") if path.is_dir()}
_RUN = [re.search(r"run\(\"\w+\", \"(\w+)\"\)", path.read_text()) for path in (TESTS.parent / "src").glob("*.py")]
INDUCTION = [0, *[2] * ("induction" in extensions.NAMES)]  # values of `model.induction`
ASYNC = [False, *[True] * ("async_evaluations" in extensions.NAMES)]  # values of `evals.async_eval`
NOISE_SCALE = "alternative" if "noise_scale" in extensions.NAMES else "none"
EVALUATED_AGENTS = "source_evaluations" in extensions.NAMES  # value of `source.evaluate`
DETAILS = "inspection" in extensions.NAMES  # value of `summaries.details`
FILMED = "films" in extensions.NAMES  # whether programs write videos
ABSENT = (_TESTED | {found[1] for found in _RUN if found}) - {*extensions.NAMES}


def needs(name: str) -> pytest.MarkDecorator:
    """Mark of a test that needs the extension `name`."""
    return pytest.mark.skipif(name not in extensions.NAMES, reason=f"the extension {name} is not installed")


def worlds(*presets: str) -> list[str]:
    """Those of the `presets` of worlds that are installed."""
    folders = (CONF, *extensions.preset_folders())
    return [one for one in presets if any((folder / f"env/{one}.yaml").exists() for folder in folders)]
