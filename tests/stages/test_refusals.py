"""Mistakes of a user and limits of a machine: one line that says what and where, exit code 2, and nothing is lost."""

import errno
import itertools
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from harness import (
    STAGES,
    TINY,
    file_size_limit,
    files_of,
    one_process,
    refusal,
    results_of,
    run,
    run_without_privileges,
)
from installed import needs

from icrl.app.compose import load_config
from icrl.envs import make_env, rooms
from icrl.envs.core import TensorEnv
from icrl.envs.rooms import DarkRoom
from icrl.programs import train_gpt
from icrl.recording import record
from icrl.runs.files import read_json, write_json
from icrl.training.program import open_run

PRODUCED = {
    "train_agents": ["histories", "logs/tiny/source"],
    "train_gpt": ["logs/tiny/gpt"],
    "evaluate": ["logs/tiny/evaluation"],
}
PLAIN = [option for option in TINY if not option.startswith("source.hidden_size")]  # not all sources have a network
NEW, EVALUATED = ("name=new", "histories=tiny"), ("name=new", "histories=tiny", "run=tiny")


def test_options_that_the_program_refuses(tmp_path):
    outcome = run("train_agents", tmp_path / "root", "tasks.num_train=8")
    said = ("tasks.num_train=8", "tasks.num_held_out=0", "has 8 tasks", "one held out")
    assert all(part in outcome.refusal for part in said), outcome
    first, *more = outcome.err.splitlines()
    assert first == f"error: {outcome.refusal}" and outcome.out == ""
    assert all(line.startswith("this command satisfies all rules: ") for line in more)
    assert not (tmp_path / "root").exists()


OFFLINE = ("source.offline_buffer_dir=nobody", "source.mini_batch_length=1", "source.mini_batch_size=2")


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        pytest.param("noise_distillation", ("source.teacher=nobody",), marks=needs("experts")),
        pytest.param("q_learning", OFFLINE, marks=needs("value_sources")),
    ],
)
def test_a_refused_source_leaves_nothing_and_its_environment_is_closed(tmp_path, monkeypatch, source, wrong):
    closed: list[int] = []
    made: list[TensorEnv] = []
    monkeypatch.setattr(DarkRoom, "close", lambda env: closed.append(id(env)))
    monkeypatch.setattr(record, "make_env", lambda config, device=None: made.append(make_env(config)) or made[-1])
    assert "nobody" in refusal("train_agents", tmp_path, f"source={source}", *wrong, preset=PLAIN)
    assert files_of(tmp_path) == {} and len(made) == 1 and id(made[0]) in closed
    assert run("train_agents", tmp_path, f"source={source}", "source.evaluate=false", preset=PLAIN).code == 0
    assert len(made) == 3 and {id(env) for env in made} <= set(closed)


def begin_again(root: Path) -> None:
    path = root / "histories/tiny/manifest.json"
    write_json(path, read_json(path) | {"complete": False, "committed": 0})


@pytest.mark.parametrize(
    ("stage", "options", "remove", "part"),
    [
        ("train_gpt", NEW, shutil.rmtree, "icrl train-agents"),
        ("evaluate", EVALUATED, shutil.rmtree, "icrl train-gpt"),
        ("train_gpt", NEW, begin_again, "not complete"),
        ("evaluate", EVALUATED, lambda root: (root / "logs/tiny/gpt/finished.json").unlink(), "no finished training"),
        ("evaluate", EVALUATED, lambda root: shutil.rmtree(root / "histories"), "no histories"),
        ("train_gpt", (*NEW, "data.keep_every=20"), lambda root: None, "data.keep_every=[20]"),
    ],
)
def test_earlier_stages(root, stage, options, remove, part):
    remove(root)
    assert part in refusal(stage, root, *options)


def test_training_says_why_there_are_more_rows_than_recorded(root):
    for every, thinned in (("[1]", ""), ("[1, 2]", ", thinned by data.keep_every=[1, 2],")):
        out = run("train_gpt", root, f"name=rows-{every[-2]}", "histories=tiny", f"data.keep_every={every}").out
        assert f" rows{thinned} of {root / 'histories/tiny'}" in out


def test_a_finished_training_is_found_whatever_model_acts(root, capsys):
    before = files_of(root / "logs")
    train_gpt.main(load_config([*TINY, f"root={root}", "policy.model=finetuned"]))
    assert "all 6 updates of tiny are done" in capsys.readouterr().out and files_of(root / "logs") == before


def test_environments_of_a_training_are_closed(root):
    config = load_config([*TINY, f"root={root}"])
    with patch.object(TensorEnv, "close") as close, open_run(config, "train_gpt", root / "logs/new/gpt", ()) as context:
        assert context and close.call_count == 1
        context.spec()
        assert close.call_count == 2


def test_a_world_whose_rewards_were_changed_is_not_that_of_the_training(root, monkeypatch):
    made = rooms.discrete_spec
    double = lambda *given: made(*given)._replace(reward_values=(0.0, 2.0))  # noqa: E731
    monkeypatch.setattr(rooms, "discrete_spec", double)
    shutil.rmtree(root / "logs/tiny/evaluation")
    assert "env.name=dark_room" in refusal("evaluate", root)


@contextmanager
def sync_limit(number: int) -> Iterator[None]:
    """From the sync after so many on there is no room, for no later write either."""
    real, syncs = os.fsync, itertools.count(1)

    def fsync(descriptor: int) -> None:
        if next(syncs) > number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    with patch.object(os, "fsync", fsync):
        yield


@pytest.mark.parametrize(
    ("limit", "number", "stage", "part"),
    [
        (file_size_limit, 100, "train_agents", "obs.npy"),
        (file_size_limit, 20_000, "train_gpt", "last-000000002.pt"),
        (file_size_limit, 30_000, "evaluate", "adaptation.png"),
        (sync_limit, 12, "train_agents", "No space left on device"),
    ],
)
def test_a_full_disk(finished, root, limit, number, stage, part):
    """The same command continues when there is room again."""
    for name in PRODUCED[stage]:
        shutil.rmtree(root / name)
    with limit(number):
        message = run(stage, root).refusal
    assert part in message and ("File too large" in message or limit == sync_limit)
    assert run(stage, root).code == 0
    assert results_of(root) == results_of(finished)


@pytest.mark.parametrize("stage", STAGES)
def test_a_root_that_is_a_file(tmp_path, stage):
    (tmp_path / "file").write_text("in the way")
    assert str(tmp_path / "file") in run(stage, tmp_path / "file").refusal
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.skipif(sys.platform != "linux", reason="takes Linux's capabilities")
def test_folders_without_permission(root):
    (root / "logs/tiny/gpt/finished.json").unlink()
    before, folders = files_of(root), [root / "logs/tiny/gpt", root / "logs/tiny", root / "histories"]
    for folder in folders:
        folder.chmod(0o500)
    with one_process() as pool:
        outcome = pool.submit(run_without_privileges, "train_gpt", root).result()
    assert "Permission denied" in outcome.refusal and str(root) in outcome.refusal
    for folder in folders:
        folder.chmod(0o700)
    assert files_of(root) == before
    assert run("train_gpt", root).code == 0
