"""What tests of several parts share: a finished run of all stages."""

import os
import shutil
from pathlib import Path

import pytest
from harness import STAGES, run
from tensorboard.summary.writer import event_file_writer

# Processes that tests start find the library and the helpers of tests as this one does.
_TESTS = Path(__file__).resolve().parent
os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (_TESTS.parent / "src", _TESTS.parent, _TESTS / "helpers")))

# Event files of one second are read in the order of their numbers as texts, and tests begin a run anew within a second
# of one process: all numbers have the same length.
event_file_writer._global_uid = event_file_writer.AtomicCounter(10**6)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a finished run of all stages with the options `harness.TINY`; only to be read."""
    root = tmp_path_factory.mktemp("finished")
    for stage in STAGES:
        outcome = run(stage, root)
        assert outcome.code == 0, outcome
    return root


@pytest.fixture
def root(finished: Path, tmp_path: Path) -> Path:
    """A copy of that run to do with as one likes."""
    return Path(shutil.copytree(finished, tmp_path / "root"))
