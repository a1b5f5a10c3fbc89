"""`src.pipeline` beside the programs: one after the other they leave the same, from any point on."""

import re
from pathlib import Path

import torch
from harness import refusal, run
from installed import FILMED
from toy import weights_of

from icrl.data.history_store import open_histories
from icrl.runs.files import read_json

VIDEOS = ("source.videos_per_task=1", "evaluation.videos=true")


def left_in(root: Path) -> tuple[dict[str, str], list[torch.Tensor], dict, dict]:
    histories = open_histories(root / "histories/tiny").manifest["columns"]
    results = read_json(root / "logs/tiny/evaluation/results.json")
    numbers = {part: results[part] for part in ("final", "curves", "decodings", "ablations")}
    found = read_json(root / "logs/tiny/source/finished.json")
    return histories, [*weights_of(root / "logs/tiny/gpt").values()], numbers, found


def same(one: Path, other: Path) -> bool:
    (*first, found), (*second, again) = left_in(one), left_in(other)
    equal = all(map(torch.equal, first[1], second[1]))
    return first[0] == second[0] and equal and first[2] == second[2] and found["success"] == again["success"]


def test_the_pipeline_leaves_what_its_programs_leave(finished: Path, tmp_path: Path) -> None:
    outcome = run("pipeline", tmp_path, *VIDEOS)
    assert outcome.code == 0, outcome
    assert "training tasks solved by all their agents" in outcome.out and "success on held-out tasks" in outcome.out
    (picture,) = [line.split()[-1] for line in outcome.out.splitlines() if line.startswith("look first")]
    short = r"in short +model, held-out tasks: success (\d\.\d\d) in episode 1, (\d\.\d\d) in the last quarter"
    found = read_json(tmp_path / "logs/tiny/evaluation/results.json")
    success = found["curves"]["model, held-out tasks"]["success"]["mean"]
    shown = re.search(short, outcome.out)
    assert shown and shown.groups() == (f"{success[0]:.2f}", f"{success[-1]:.2f}")
    assert Path(picture).read_bytes() and "evaluate  100%" in outcome.out
    assert "videos:" not in outcome.err  # the other process shows no bar
    assert same(tmp_path, finished)
    assert len([*(tmp_path / "videos/tiny/source").glob("*_agent_0.mp4")]) == 5 * FILMED
    assert bool([*(tmp_path / "videos/tiny/in_context").glob("*.mp4")]) == FILMED
    assert (
        run("pipeline", tmp_path, *VIDEOS).out.splitlines()[-1] == outcome.out.splitlines()[-1]
    )  # nothing is repeated
    assert "source.num_learners" in refusal("pipeline", tmp_path, "source.num_learners=2")


def test_a_checkpoint_beyond_the_training_is_refused_before_it(tmp_path: Path) -> None:
    tuned = ("policy.model=finetuned", "finetune.num_iterations=2", "finetune.num_mini_batches=2")
    for options, last in ((), 6), (tuned, 4):
        said = refusal("pipeline", tmp_path, *options, f"evaluation.checkpoint={last + 1}")
        assert f"evaluation.checkpoint={last + 1}" in said and f"1 to {last}" in said
    assert not [*tmp_path.iterdir()]


def test_a_run_whose_own_histories_or_models_are_not_used_is_refused_before_any_work(tmp_path: Path) -> None:
    for option in ("histories=other", "run=other"):
        said = refusal("pipeline", tmp_path, "name=own", option)
        assert option in said and "name=own" in said
    assert not [*tmp_path.iterdir()]


def test_agents_are_examined_by_whoever_comes_next(finished: Path, tmp_path: Path, monkeypatch) -> None:
    """The run ends in stage two: its agents were not examined, or were; the same command goes on."""
    with monkeypatch.context() as broken:
        broken.setattr("icrl.programs.train_gpt.main", lambda config: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run("pipeline", tmp_path).code == 130
    assert run("pipeline", tmp_path).code == 0
    assert same(tmp_path, finished)
