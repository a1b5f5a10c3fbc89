"""Figures of studies in the tables of the pages."""

from pathlib import Path

import pytest

from benchmarks.extensions.studies.learning import PAGES, figures_of, keep, written
from benchmarks.extensions.studies.tables import (
    ABOVE_OPTIMUM,
    COVERED,
    LATE,
    MEMORY,
    OFF_PLAN,
    REGRET,
    STEPS,
    TABLES,
    Line,
    Table,
)


def intervals(*means: float) -> dict[str, list[float]]:
    return {"mean": [*means], "low": [mean - 0.1 for mean in means], "high": [mean + 0.1 for mean in means]}


def test_figures_of_learning_are_those_of_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight episodes, so the last quarter are two; coverage is shown by the end of episode 4."""
    late = {"mean": 0.75, "low": 0.5, "high": 1.0}
    model, walk = intervals(0, 0, 0, 0.25, 0.5, 0.5, 0.7, 0.8), intervals(*[0.5] * 6, 0.25, 0.75)
    wiped = {"label": "model, context wiped at reset", "curves": {"success": walk}, "final": {"success": late}}
    found = {
        "curves": {
            "model, held-out tasks": {"success": model, "returns": model},
            "a walk": {"success": walk, "regret": intervals(1, 2)},
        },
        "final": {
            "held_out": {"success": late, "returns": late, "steps_to_goal": {"mean": 4.0, "low": 3.0, "high": 5.0}}
        },
        "decodings": {},
        "ablations": {"wiped": wiped},
        "coverage": {"model, context kept": intervals(0.2, 0.4, 0.6, 0.8), "a walk": intervals(0.1, 0.2, 0.3, 0.4)},
        "coverage_gain": {"model, context kept": intervals(0, 0.2, 0.3, 0.5)},
        "off_plan_gain": {"model, context kept": intervals(0.1, 0.2, 0.3), "a walk": intervals(0, 0, 0)},
        "differences": {"optimum": {"success": late, "steps_to_goal": {"mean": 1.5, "low": 0.25, "high": 2}}},
    }
    row = {"variant": "ours", "test": "", "updates": 7, "found": found, "trained_at": ["abcdefghij", "0123456789+"]}
    row["runs"] = ["one", "other"]
    study = {"splits": [], "seeds": [0, 1], "measure": "success"}
    keep("rooms", {"rows": [row], "config": {"study": study}, "machine": {}, "versions": {}}, tmp_path)
    columns = LATE, STEPS, ABOVE_OPTIMUM, COVERED, MEMORY, OFF_PLAN, "updates"
    monkeypatch.setitem(TABLES, "rooms", Table([Line("rooms", "ours")], [*columns, "minutes"], "variant"))
    figures = "0.750 [0.500, 1.000]", "4.00 [3.00, 5.00]", "1.50 [0.25, 2.00]", "0.800 [0.700, 0.900]"
    figures = *figures, "0.500 [0.400, 0.600]", "0.300 [0.200, 0.400]", "7"
    lines = ["variant", *columns], ["---"] * 8, ["ours", *figures]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    made = "(`python -m src.study study=rooms`, seeds 0, 1, at 0123456+, abcdefg)"
    shown = written("before\n<!-- results: rooms -->\nstale\n<!-- end -->\nafter\n", tmp_path)
    assert shown == f"before\n<!-- results: rooms -->\n\n{table}\n\n{made}\n\n<!-- end -->\nafter\n"
    walked = figures_of(row)["a walk"]
    assert (walked[LATE], walked["episode 5"], walked[COVERED]) == ("0.500", "0.500", "0.400 [0.300, 0.500]")
    assert walked[OFF_PLAN] == "0.000 [-0.100, 0.100]" and walked[REGRET] == "2.00 [1.90, 2.10]"
    assert figures_of(row)[wiped["label"]][LATE] == "0.750 [0.500, 1.000]"


def test_tables_of_all_pages_show_what_was_kept() -> None:
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        assert written(text) == text, f"{path} is stale: python -m benchmarks.extensions.studies.learning --tables"
