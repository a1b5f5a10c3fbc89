"""Progress bars."""

import io
import re
import sys

import pytest

from icrl.runs.processes import Progress


@pytest.mark.parametrize("terminal", [True, False])
def test_bars_are_drawn_on_terminals_alone(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines go on, and bars count, wherever."""
    out, err = io.StringIO(), io.StringIO()
    err.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with Progress("first", 20, 0, "it") as progress:
        for _ in range(20):
            progress.advance()
            progress.tell("told")
    assert bool(err.getvalue()) == terminal
    assert len(re.findall(r"first +\d+%  told  .* it/s", out.getvalue())) == 10
