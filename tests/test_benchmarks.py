"""Figures of benchmarks: timing by a clock of ours, and a page against one written by hand."""

import json
from pathlib import Path

import pytest

from benchmarks.measure import Report, fastest, side_by_side
from benchmarks.page import PAGE, page

RATES = {"peer, slow": 50.0, "peer, fast": 1200.0, "ours": 3000.0}


def test_rates_are_medians_of_rounds_in_turn() -> None:
    """Calls take 1, 2, 3, ... seconds; the first of each alternative warms up."""
    now, calls = [0], list[str]()

    def work(name: str) -> int:
        calls.append(name)
        now[0] += len(calls)
        return 60

    found = side_by_side({"a": lambda: work("a"), "b": lambda: work("b")}, 3, lambda: now[0])
    assert "".join(calls) == "abababab"
    assert found == {"a": 60 / 5, "b": 60 / 6}  # the calls 3, 5, 7 and 4, 6, 8


def test_the_page_shows_what_was_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each benchmark with its tables; what was measured with other options is not kept."""
    assert fastest(RATES, "peer") == "peer, fast"
    Report("b_first", folder=tmp_path).show("Rooms", RATES, "step", "peer, fast")
    again = Report("a_second", folder=tmp_path)
    again.show("Update", {"ours": 2.0}, "update", "ours", {"ours": 8.0})
    Report("with_options", ["seed=1"], tmp_path).show("Rooms", RATES, "step", "ours")
    assert "2.50 x peer, fast" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a_second.json", "b_first.json"]
    kept, found = json.loads((tmp_path / "b_first.json").read_text()), page(tmp_path)
    second, first = found[found.index("\n## ") :].split("## `python -m benchmarks.")[1:]
    assert second.startswith("a_second`") and "| Update | ours | 2.0 updates/s | 1.00 | 25% |" in second
    assert (
        first.startswith("b_first`") and kept["commit"] in first and "|  | peer, fast | 1,200 steps/s | 1.00 |" in first
    )


def test_the_page_of_figures_is_that_of_the_kept_results() -> None:
    assert PAGE.read_text() == page()
