"""The same command again: an interrupted stage goes on, and ends with the bits of a run that nothing disturbed; a
finished one stays as it is, or refuses other options."""

import fcntl
import os
import shutil
import signal
import sys
import time

import crash
import pytest
from harness import STAGES, done, ended, files_of, one_process, refusal, results_of, run, start
from installed import needs
from kin import all_gone, family

import icrl
from icrl.runs.files import read_json, write_json

EVERY = 1 if int(os.environ.get("ICRL_KILLS", "1")) >= 20 else 12  # of the writes, one in so many is the last of a run
LOCKS = {"train_agents": "histories/tiny", "train_gpt": "logs/tiny/gpt", "evaluate": "logs/tiny/evaluation"}
SAID = {"train_agents": "training tasks solved", "train_gpt": "all 6 updates of tiny are done", "evaluate": "optimum"}
MAY_CHANGE = (
    "summaries.summary_interval=7",
    "checkpoints.keep_last=3",
    "evals.async_eval=true",
    "evaluation.videos=true",
)
NEEDED = {"train_agents": [], "train_gpt": ["histories"], "evaluate": ["histories", "logs/tiny/gpt"]}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("stage", "signals", "num_writes"),
    [
        pytest.param("train_agents", ["SIGTERM:40", "SIGINT:20,60"], 60, marks=pytest.mark.long),
        ("train_gpt", ["SIGTERM:12", "SIGINT:7,30"], 33),
        pytest.param("evaluate", ["SIGINT:4"], 9, marks=pytest.mark.long),
    ],
)
def test_every_write_may_be_the_last(finished, tmp_path, stage, signals, num_writes):
    folder = tmp_path / "root"
    folder.mkdir()
    signals = [f"SIGKILL:{','.join(map(str, range(2, num_writes, EVERY)))}", *signals]
    for part in NEEDED[stage]:
        shutil.copytree(finished / part, folder / part)
    with one_process() as pool:
        report = pool.submit(crash.sweep, stage, folder, signals).result()
    assert not any(found["failures"] for found in report.values()), report
    for name, _, points in (text.partition(":") for text in signals):
        assert report[name]["points"] == len(points.split(","))


@needs("async_unrolls")
@pytest.mark.long
def test_asynchronous_actors_killed_and_continued(tmp_path):
    """A3C, whose actors play in another process ahead of the updates: the same bits, and no process is left."""
    life = ("source.num_env_steps=1000", "source.history_steps=1000", "evals.eval_interval=60")
    options = ("source=a3c", *life, "checkpoints.checkpoint_interval=10")
    done("train_agents", tmp_path / "undisturbed", *options)
    process = start("train_agents", tmp_path / "killed", *options)
    while not (tmp_path / "killed/logs/tiny/source/last-000000030.json").exists() and process.poll() is None:
        time.sleep(0.002)
    started = family(process.pid)
    process.kill()
    assert ended(process).code == -signal.SIGKILL and started and all_gone(started)
    done("train_agents", tmp_path / "killed", *options)
    assert results_of(tmp_path / "killed") == results_of(tmp_path / "undisturbed")


@pytest.mark.quick
@pytest.mark.parametrize("options", [(), MAY_CHANGE])
def test_a_finished_stage_is_not_done_again(finished, options):
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
        ("train_gpt", "model.embed_dim", "8", "16"),
        ("evaluate", "model.embed_dim", "8", "16"),
        ("evaluate", "policy.temperature", "1.0", "0.5"),
    ],
)
def test_other_options_are_refused(finished, stage, field, made_with, value):
    message = refusal(stage, finished, f"{field}={value}")
    assert f"{field}={made_with}" in message and value in message.replace(made_with, "")
    assert "or another name=" in message
    assert ("another name= with run=tiny histories=[tiny]" in message) == (field == "policy.temperature")


def test_records_with_options_that_are_gone_are_read(root):
    """Of a source, of a training, and of an evaluation, whose identity had them too."""
    gone = {"evaluation": "calibration", "source": "export", "trainer": "seeds"}
    for path in root.rglob("*.json"):
        content = read_json(path)
        for config in (content.get("config"), content.get("description", {}).get("config")):
            for group, option in gone.items() if config else ():
                config[group] |= {option: False}
        if path.name == "results.json":
            content["owner"]["run"] = "f00d"
        write_json(path, content)
    before = files_of(root)
    assert SAID["evaluate"] in done("evaluate", root) and files_of(root) == before
    done("train_gpt", root)
    done("evaluate", root, "name=again", "run=tiny", "histories=tiny")
    assert icrl.load(root / "logs/tiny", model="gpt").config.name == "tiny"


def test_another_name_beside_the_old_one(root):
    """Doing what the message says: the new run reads the old histories and touches nothing of the old run, whose
    results are not replaced by those of the new model."""
    before = files_of(root)
    done("train_gpt", root, "seed=1", "name=second", "histories=tiny")
    after = files_of(root)
    assert {name: after[name] for name in before} == before
    assert {name.split("/")[1] for name in after.keys() - before.keys()} == {"second"}
    assert "another model" in refusal("evaluate", root, "run=second")


def test_histories_that_are_gone_do_not_count_as_done(root):
    (root / "histories/tiny/manifest.json").unlink()
    assert "restore them, or remove it" in refusal("train_agents", root)


@pytest.mark.parametrize("stage", STAGES)
def test_a_folder_that_is_held_is_refused(finished, stage):
    with (finished / LOCKS[stage] / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # it belongs to the open file, so it holds against this process too
        message = refusal(stage, finished)
    assert f"another run is writing to {finished / LOCKS[stage]}" in message and "name=" in message
    done(stage, finished)
