"""Which iterations are in the trace, and that it is there however training ends."""

import json
import re
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.profiler import record_function

from icrl.contracts import PipelineError
from icrl.runs.profiling import Profiler


def train(folder: Path, num_iterations: int, last: int = 6, fail_at: int = 0) -> list[str]:
    """Iterations 1 to `last`, each with a marker and a matrix product; returns what was reported."""
    weight, reported = torch.ones(4, 4, requires_grad=True), []
    with Profiler(folder, num_iterations, reported.append) as profiler:
        for iteration in range(1, last + 1):
            with record_function(f"iteration {iteration}"):
                (weight @ weight).sum().backward()
                if iteration == fail_at:
                    raise KeyboardInterrupt("mine")
            profiler.step()
            written = (folder / "profile" / "report.txt").exists()
            assert written == bool(num_iterations and iteration > num_iterations)  # as soon as it can be
    return reported


def traced(folder: Path) -> list[dict]:
    return json.loads((folder / "profile" / "train.pt.trace.json").read_text())["traceEvents"]


def iterations_of(events: list[dict]) -> list[int]:
    markers = [event for event in events if event["name"].startswith("iteration ") and event["ph"] == "X"]
    return sorted({int(event["name"].split()[1]) for event in markers})


@pytest.mark.parametrize(("num_iterations", "last", "expected"), [(3, 6, [2, 3, 4]), (1, 4, [2]), (4, 3, [2, 3])])
def test_the_iterations_after_the_first_are_recorded(
    tmp_path: Path, num_iterations: int, last: int, expected: list[int]
) -> None:
    reported = train(tmp_path, num_iterations, last)
    events = traced(tmp_path)
    assert iterations_of(events) == expected
    products = [event for event in events if event["name"] == "aten::mm"]
    assert len(products) == 3 * len(expected)  # one forward, two backward
    assert reported == [f"profile of {len(expected)} whole iterations: {tmp_path / 'profile'}"]
    assert sorted(path.name for path in (tmp_path / "profile").iterdir()) == ["report.txt", "train.pt.trace.json"]


def test_the_report_has_both_tables(tmp_path: Path) -> None:
    train(tmp_path, 2)
    own, called = (tmp_path / "profile" / "report.txt").read_text().split("By CPU time with what it calls")
    assert own.startswith("By own CPU time")

    for table, column in ((own, 0), (called, 1)):
        assert "aten::mm" in table and "# of Calls" in table
        rows = [found for line in table.splitlines() if (found := re.findall(r"([\d.]+)%", line))]
        shares = [float(row[column]) for row in rows]
        assert len(shares) > 3 and shares == sorted(shares, reverse=True)


@pytest.mark.parametrize(("fail_at", "expected"), [(2, [2]), (4, [2, 3, 4])])
def test_a_failure_goes_on_and_leaves_a_report(tmp_path: Path, fail_at: int, expected: list[int]) -> None:
    with pytest.raises(KeyboardInterrupt, match="mine"):
        train(tmp_path, 5, fail_at=fail_at)
    assert iterations_of(traced(tmp_path)) == expected
    assert "aten::mm" in (tmp_path / "profile" / "report.txt").read_text()


def test_the_first_iteration_alone_gives_no_report(tmp_path: Path) -> None:
    reported: list[str] = []
    with pytest.raises(ValueError, match="mine"), Profiler(tmp_path, 2, reported.append):
        raise ValueError("mine")
    assert reported == ["no profile: training ended in the first iteration, which is not recorded"]
    assert not list(tmp_path.iterdir())
    train(tmp_path, 2)  # the profiler of this process is free again
    assert iterations_of(traced(tmp_path)) == [2, 3]


def test_none_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icrl.runs.profiling.profile", _forbidden)
    assert train(tmp_path, 0) == []
    assert not list(tmp_path.iterdir())


def _forbidden(**_: object) -> None:
    raise AssertionError("a profiler is made")


def test_a_new_process_replaces_the_profile(tmp_path: Path) -> None:
    train(tmp_path, 3)
    (tmp_path / "profile" / "report.txt").unlink()
    train(tmp_path, 1)
    assert iterations_of(traced(tmp_path)) == [2]
    assert len(list((tmp_path / "profile").iterdir())) == 2


def no_folder(folder: Path) -> None:
    (folder / "profile").write_text("a file in the way")


def no_trace(folder: Path) -> None:
    (folder / "profile" / "train.pt.trace.json.tmp" / "in the way").mkdir(parents=True)


def no_report(folder: Path) -> None:
    (folder / "profile" / "report.txt.partial").mkdir(parents=True)


@pytest.mark.parametrize("obstacle", [no_folder, no_trace, no_report])
def test_what_cannot_be_written_is_a_pipeline_error(tmp_path: Path, obstacle: Callable[[Path], None]) -> None:
    obstacle(tmp_path)
    with pytest.raises(PipelineError, match="cannot write .*profile"):
        train(tmp_path, 2)


@pytest.mark.parametrize("obstacle", [no_folder, no_trace, no_report])
def test_the_exception_of_training_wins(tmp_path: Path, obstacle: Callable[[Path], None]) -> None:
    obstacle(tmp_path)
    with pytest.raises(KeyboardInterrupt, match="mine"):
        train(tmp_path, 5, fail_at=3)


def test_a_full_disk_is_a_pipeline_error(tmp_path: Path) -> None:
    """Also where there is an older trace; no part of the new one takes the little space there is."""
    train(tmp_path, 1)
    (tmp_path / "profile" / "report.txt").unlink()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(PipelineError, match="cannot write .*json: is the disk full"):
            train(tmp_path, 3)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list((tmp_path / "profile").iterdir())


def test_a_closed_terminal_does_not_hide_the_exception(tmp_path: Path) -> None:
    def closed(_: str) -> None:
        raise OSError("closed")

    with pytest.raises(ValueError, match="mine"), Profiler(tmp_path, 5, closed) as profiler:
        profiler.step()
        raise ValueError("mine")
