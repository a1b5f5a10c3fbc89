"""Shared by all tests: a finished run of all stages, and the selection of `pytest -m quick`."""

import atexit
import fcntl
import hashlib
import os
import pickle
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from multiprocessing import forkserver, set_forkserver_preload
from pathlib import Path
from typing import Any

import omegaconf.base
import pytest
from harness import STAGES, blank, done, still
from hypothesis import settings
from installed import ABSENT
from omegaconf import DictConfig
from tensorboard.summary.writer import event_file_writer

from icrl import extensions
from icrl.app import compose
from icrl.plots import style

# Processes that tests start find the library and the helpers of tests as this one does.
_TESTS = Path(__file__).resolve().parent
_PATHS = (_TESTS.parent / "src", _TESTS.parent, _TESTS / "helpers", *filter(None, [os.environ.get("PYTHONPATH")]))
os.environ["PYTHONPATH"] = os.pathsep.join(map(str, _PATHS))

set_forkserver_preload(["forked"])
forkserver.set_forkserver_preload = lambda _: None

# The interpolations of presets are parsed once, which else is a third of the time of every composition.
omegaconf.base.parse = cache(omegaconf.base.parse)
if "COMPOSED" not in os.environ:  # the folder that workers share
    os.environ["COMPOSED"] = tempfile.mkdtemp(prefix="composed")
    atexit.register(shutil.rmtree, os.environ["COMPOSED"])


@cache
def composed_once(*presets: Any) -> DictConfig:
    """Composition of presets: made by the first process that needs it, which takes longest, and read by the others that
    have the same extensions."""
    made_of = repr((presets, compose._preset_folders()))
    path = Path(os.environ["COMPOSED"]) / hashlib.sha256(made_of.encode()).hexdigest()
    if path.exists():
        return pickle.loads(path.read_bytes())
    composed = compose._composed(*presets)
    own = path.with_suffix(f".{os.getpid()}")
    own.write_bytes(pickle.dumps(composed))
    own.rename(path)
    return composed


settings.register_profile("busy", deadline=None)  # other work of the machine must not fail a property
settings.load_profile("busy")
compose._composed_once = composed_once
os.fsync = lambda _: None  # the disk of a test may lose what it has not written yet

# Event files of one second are read in the order of their numbers as texts, and tests begin a run anew within a second
# of one process: all numbers have the same length.
event_file_writer._global_uid = event_file_writer.AtomicCounter(10**6)


QUICK = (  # files with the strongest tests of each room that take a few seconds
    *("test_layers.py", "test_randomness.py", "config/test_schedules.py"),
    *("envs/test_rooms.py", "envs/test_rollout.py"),
    *("rl/test_returns.py", "rl/test_statistics.py"),
    *("nn/test_transformer.py", "nn/test_networks.py", "objectives/test_ad.py"),
    *("data/test_windows.py", "runs/test_files.py", "runs/test_checkpoint.py", "evaluation/test_protocol.py"),
)


assert all((_TESTS / name).is_file() for name in QUICK)
OF_EXTENSIONS = [path for path in _TESTS.glob("extensions/*/test_*.py") if "pytest.mark.quick" in path.read_text()]
PARTLY_QUICK = ("stages/test_rerun.py", *OF_EXTENSIONS)  # here tests are marked one by one


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore tests of extensions that are not installed. With `-m quick`, do not even import the other files."""
    if collection_path.parent == _TESTS / "extensions" and collection_path.name in ABSENT:
        return True
    quick = {_TESTS / name for name in (*QUICK, *PARTLY_QUICK)}
    skipped = config.option.markexpr == "quick" and collection_path.suffix == ".py" and collection_path not in quick
    return True if skipped else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of the quick files, and begin with the files that take longest, those that run stages and those of
    extensions, so that all workers end at about the same time."""
    of_stages = (_TESTS, _TESTS / "stages", _TESTS / "runs")
    items.sort(key=lambda item: (item.path.parent not in of_stages, _TESTS / "extensions" not in item.path.parents))
    quick = {_TESTS / name for name in QUICK}
    for item in items:
        if item.path in quick:
            item.add_marker(pytest.mark.quick)


@pytest.fixture(scope="module", autouse=True)
def blank_pictures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Small pictures of noise, and videos of one frame: to draw them takes longer than all other work of an evaluation
    with the options `harness.TINY`. A file whose tests look at what is drawn has a line `DRAWS = True`."""
    with pytest.MonkeyPatch.context() as patch:
        if not getattr(request.module, "DRAWS", False):
            patch.setattr(style, "figure_to_array", blank)
            if "films" in extensions.NAMES:
                patch.setattr("icrl.extensions.films.films.write_video", still)
        yield


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Root of a finished run of all stages with the options `harness.TINY`, with blank pictures; only to be
    read."""
    of_worker = tmp_path_factory.getbasetemp()
    shared = of_worker.parent if "PYTEST_XDIST_WORKER" in os.environ else of_worker
    with (shared / "finished.lock").open("w") as lock, pytest.MonkeyPatch.context() as patch:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several workers the first makes it
        if not (whole := shared / "finished").exists():
            patch.setattr(style, "figure_to_array", blank)
            made = tmp_path_factory.mktemp("made")
            for stage in STAGES:
                done(stage, made)
            made.rename(whole)
    return Path(shutil.copytree(whole, tmp_path_factory.mktemp("finished") / "root"))


@pytest.fixture
def root(finished: Path, tmp_path: Path) -> Path:
    """Copy of that run, to be changed."""
    return Path(shutil.copytree(finished, tmp_path / "root"))
