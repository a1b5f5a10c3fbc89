"""Processes that end with the one that asked for them."""

import subprocess
import sys
from pathlib import Path

import pytest
from kin import all_gone

HELD = """
import ctypes, multiprocessing, os, time
from icrl.extensions.parallel.children import end_with_parent

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
