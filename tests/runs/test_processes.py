"""Progress bars, and processes that end with the one that asked for them."""

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kin import all_gone

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


HELD = """
import ctypes, multiprocessing, os, time
from icrl.runs.processes import end_with_parent

def hold():
    end_with_parent()
    os.write(1, b"%d\\n" % os.getpid())
    ctypes.PyDLL(None).sleep(1000)

if __name__ == "__main__":
    multiprocessing.get_context("forkserver").Process(target=hold).start()
    time.sleep(1000)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_that_holds_the_interpreter_ends_with_the_one_that_asked_for_it(tmp_path: Path) -> None:
    (program := tmp_path / "held.py").write_text(HELD)
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True) as asker:
        assert asker.stdout
        pid = int(asker.stdout.readline())
        asker.kill()
    assert all_gone([pid])
