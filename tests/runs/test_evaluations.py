"""Periodic evaluations: whatever dies, training goes on and ends with what an undisturbed run ends with."""

import itertools
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from evaluated import OWNER, SCORES, make, state_at
from installed import ASYNC
from toy import CPU, curves, steps_of, use_worker_here

from icrl.contracts import PipelineError
from icrl.runs import checkpoint
from icrl.runs.files import Identity, read_json, write_owned

LAST = (2, 5)  # steps with a checkpoint to go on from


here = pytest.fixture(use_worker_here)  # no process at all


def train(folder: Path, *, async_eval: bool) -> None:
    """A loop as ours are: evaluate, then write the checkpoint of that step; go on from the newest one."""
    found = checkpoint.load_newest(folder, "last", CPU)
    done = found[1]["step"] if found else -1
    with make(folder, done, async_eval=async_eval) as service:
        for step in range(done + 1, 6):
            service.start(step, state_at(step))
            if step in LAST:
                checkpoint.save(folder, "last", step, {"step": step}, {}, keep=2)
            service.poll()
        service.wait()


def everything(folder: Path) -> Any:
    return curves(folder / "evals"), {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    train(folder, async_eval=False)
    return folder


def test_what_a_run_leaves(undisturbed):
    known = read_json(undisturbed / "evaluations.json")["evaluations"]
    assert [(entry["step"], entry["metrics"]) for entry in known] == [(step, {"sum": 0.75 * step}) for step in range(6)]
    assert repr([entry["score"] for entry in known]) == repr(SCORES)
    assert curves(undisturbed / "evals") == {"eval/sum": [(step, repr(0.75 * step)) for step in range(6)]}
    state, sidecar = checkpoint.load_newest(undisturbed, "best", CPU)
    assert sidecar["step"] == 3 and sidecar["description"] == OWNER
    assert torch.equal(state["w"], torch.full((3,), 0.75))
    assert steps_of(undisturbed, "best") == [3] and not [*undisturbed.glob("pending-*")]


def run(folder: Path, last: float = float("inf"), *, async_eval: bool) -> int:
    """Train until the end, or until killed before operation number `last` of those that change files for good; how many
    there were."""
    count = 0

    def counted(operation: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            if count >= last:
                raise KeyboardInterrupt
            count += 1
            return operation(*arguments, **options)

        return wrapper

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", counted(lambda handle: None))
        for name in ("unlink", "replace"):
            patch.setattr(Path, name, counted(getattr(Path, name)))
        try:
            train(folder, async_eval=async_eval)
        except KeyboardInterrupt:
            assert count == last
    return count


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("first", ASYNC)
def test_killed_before_any_file_operation(tmp_path, undisturbed, *, first):
    """And continued in the same way or in the other. Each way to begin has every second operation."""
    for last in itertools.count(int(first), 2):
        folder = tmp_path / str(last)
        count = run(folder, last, async_eval=first)
        run(folder, async_eval=last % 4 < 2)
        assert everything(folder) == everything(undisturbed)
        if count < last:
            break
    assert last > 40


@pytest.mark.parametrize("other", [{"program": "train_gpt", "run": "beef"}, {"program": "train_ilql", "run": "f00d"}])
def test_what_is_of_another_run_is_refused(tmp_path, other):
    """But a run that begins anew drops all that was there."""
    named = re.escape(str(Identity.of(other)))
    write_owned(tmp_path / "evaluations.json", Identity.of(other), 1, {"evaluations": []})
    with pytest.raises(PipelineError, match=rf" is from {named}, but train_gpt \(run f00d\) is needed here"):
        make(tmp_path, done=1)
    with make(tmp_path) as service:
        assert not service.results


def test_a_run_does_not_go_on_without_its_earlier_results(undisturbed, tmp_path):
    """The best of the later ones would replace a better one."""
    folder = Path(shutil.copytree(undisturbed, tmp_path / "run"))
    (folder / "evaluations.json").unlink()
    with pytest.raises(PipelineError, match=r"evaluations\.json is missing"):
        make(folder, done=5)
    assert steps_of(folder, "best") == [3]


@pytest.mark.parametrize(("trained", "best"), [(0, 0), (1, 3), (4, 5)])
def test_what_is_untrained_is_never_the_best(tmp_path, trained, best):
    with make(tmp_path, trained=trained, async_eval=False) as service:
        for step in range(6):
            service.start(step, state_at(step))
    assert steps_of(tmp_path, "best") == [best]
