"""The program that exports the page: from a finished run, and what it refuses."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from demo_pages import COMMITTED
from harness import TINY
from installed import needs

from icrl.app.compose import load_config
from icrl.contracts import ConfigError
from icrl.extensions.demo.page import CHECKPOINT, page_files
from icrl.extensions.demo.programs.export_demo import main

pytest.importorskip("onnxscript")


def content_of(folder: Path) -> Any:
    return json.loads((folder / CHECKPOINT).read_text().removeprefix("globalThis.CHECKPOINT = ").removesuffix(";\n"))


def test_a_finished_run_becomes_a_page_with_its_goals_and_references(finished: Path, tmp_path: Path, capsys) -> None:
    shutil.copytree(finished / "logs", tmp_path / "logs")
    folder = main(load_config([*TINY, f"root={tmp_path}"]))
    assert folder == tmp_path / "logs" / "tiny" / "demo"
    assert {path.name for path in folder.iterdir()} == {*page_files(b""), ".lock"}
    assert str(folder / "index.html") in capsys.readouterr().out
    found, results = content_of(folder), json.loads((folder.parent / "evaluation" / "results.json").read_text())
    assert found["room"] == {"size": 3, "max_steps": 4, "start": 4, "terminates": True}
    assert [[goal] for goal in found["goals"]["held_out"]] == results["held_out_tasks"]
    assert [[goal] for goal in found["goals"]["train"]] == results["train_tasks"]
    for name in ("random", "optimum"):
        exact = results["references"]["held_out"][name]["steps_to_goal"]
        shown = [found["references"][name][goal] for goal in found["goals"]["held_out"]]
        assert shown == pytest.approx(exact, abs=1e-3)
    mean = results["curves"]["model, held-out tasks"]["steps_to_goal"]["mean"]
    assert found["references"]["average"]["values"] == pytest.approx(mean, abs=1e-3)
    assert "start of life" in found["references"]["source"]["label"]
    committed = content_of(COMMITTED.parent)
    assert {part: type(content) for part, content in committed.items()} == {k: type(v) for k, v in found.items()}
    for part in ("about", "room", "context", "policy", "measure", "references", "network"):
        assert committed[part].keys() == found[part].keys(), f"{COMMITTED} is of another version: export it anew"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param("env=gymnasium", r"env\.name=gymnasium: .* it must be", marks=needs("from_gymnasium")),
        ("env=dark_room_permuted", r"env\.permute_actions=true: .* where it is false"),
        ("env=dark_room", r"no finished training in .*run `icrl finetune`"),
    ],
)
def test_what_the_page_cannot_show_is_refused(tmp_path: Path, options: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        main(load_config([f"root={tmp_path}", "model.context_len=80", options]))
