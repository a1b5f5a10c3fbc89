"""A finished stage stays as it is: run again it says so, run with other options it refuses."""

import fcntl
import signal
import time
from pathlib import Path

import pytest
from harness import STAGES, done, ended, files_of, refusal, run, start

LOCKS = {"train_agents": "histories/tiny", "train_gpt": "logs/tiny/gpt", "evaluate": "logs/tiny/evaluation"}
SAID = {"train_agents": "training tasks solved", "train_gpt": "all 6 updates of tiny are done", "evaluate": "optimum"}
MAY_CHANGE = (
    "summaries.summary_interval=7",
    "checkpoints.keep_last=3",
    "evals.async_eval=true",
    "evaluation.videos=true",
)


@pytest.mark.quick
@pytest.mark.parametrize("options", [(), MAY_CHANGE])
def test_a_finished_stage_is_not_done_again(finished: Path, options: tuple[str, ...]) -> None:
    """Not even with options that may change, as they do not touch what is computed."""
    before = files_of(finished)
    for stage in STAGES:
        outcome = run(stage, finished, *options)
        assert (outcome.code, outcome.err) == (0, "")
        assert SAID[stage] in outcome.out and str(finished) in outcome.out
    assert files_of(finished) == before


@pytest.mark.quick
@pytest.mark.parametrize(
    ("stage", "field", "made_with", "value"),
    [
        ("train_agents", "source.learning_rate", "0.003", "0.002"),
        ("train_agents", "seed", "0", "1"),
        ("train_gpt", "env.size", "3", "4"),
        ("train_gpt", "model.embed_dim", "8", "16"),
        ("evaluate", "tasks.num_train", "5", "4"),
        ("evaluate", "model.embed_dim", "8", "16"),
        ("evaluate", "policy.temperature", "1.0", "0.5"),
    ],
)
def test_other_options_are_refused(finished: Path, stage: str, field: str, made_with: str, value: str) -> None:
    message = refusal(stage, finished, f"{field}={value}")
    assert f"{field}={made_with}" in message and value in message.replace(made_with, "")
    assert "or another name=" in message


def test_another_name_beside_the_old_one(root: Path) -> None:
    """Doing what the message says: the new run reads the old histories and touches nothing of the old run, whose
    results are not replaced by those of the new model."""
    before = files_of(root)
    done("train_gpt", root, "model.embed_dim=16", "name=wide", "histories=tiny")
    done("train_gpt", root, "seed=1", "name=second", "histories=tiny")
    after = files_of(root)
    assert {name: after[name] for name in before} == before
    assert {name.split("/")[1] for name in after.keys() - before.keys()} == {"wide", "second"}
    assert "another model" in refusal("evaluate", root, "run=second")


def test_histories_that_are_gone_do_not_count_as_done(root: Path) -> None:
    (root / "histories/tiny/manifest.json").unlink()
    assert "restore them, or remove it" in refusal("train_agents", root)


def test_two_runs_at_once(finished: Path, tmp_path: Path) -> None:
    """While a run works (and is stopped here, in the middle), a second one is refused; the first ends as if alone."""
    longer = "source.num_env_steps=1200"  # the lives go on after the histories are full
    first = start("train_agents", tmp_path, longer)
    try:
        while not (tmp_path / "logs/tiny/source/last-000000002.json").exists() and first.poll() is None:
            time.sleep(0.005)
        first.send_signal(signal.SIGSTOP)
        assert "another run" in refusal("train_agents", tmp_path, longer)
    finally:
        first.send_signal(signal.SIGCONT)
    outcome = ended(first)
    assert outcome.code == 0, outcome
    for column in (finished / "histories/tiny").glob("*.npy"):
        assert (tmp_path / "histories/tiny" / column.name).read_bytes() == column.read_bytes()


@pytest.mark.parametrize("stage", STAGES)
def test_a_folder_that_is_held_is_refused(finished: Path, stage: str) -> None:
    with (finished / LOCKS[stage] / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # it belongs to the open file, so it holds against this process too
        message = refusal(stage, finished)
    assert f"another run is writing to {finished / LOCKS[stage]}" in message and "name=" in message
    done(stage, finished)
