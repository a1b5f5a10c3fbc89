"""What a user can get wrong, or a disk: one line that says what and where, exit code 2, and nothing lost."""

import errno
import json
import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness import STAGES, TINY, ended, files_of, results_of, run, start

from icrl.envs import make_env
from icrl.envs.core import TensorEnv
from icrl.envs.dark_room import DarkRoom
from icrl.programs import train_agents
from icrl.runs.files import read_json, sha256, write_json

CHECKPOINTS = {"train_agents": "logs/tiny/source", "train_gpt": "logs/tiny/gpt"}


class Exploit:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


# ---- options


@pytest.mark.parametrize(
    ("option", "parts"),
    [
        ("source.learning_rat=0.1", ["source.learning_rat"]),
        ("colour=red", ["colour"]),
        ("source=sarsa", ["source/sarsa"]),
        ("seed", ["seed"]),
        ("--seed=1", ["--seed=1", "KEY=VALUE"]),
        ("source.num_envs=many", ["source.num_envs", "many"]),
        ("trainer.mini_batch_size=2.5", ["trainer.mini_batch_size", "2.5"]),
        ("evaluation.videos=perhaps", ["evaluation.videos", "perhaps"]),
        ("env.size=1", ["env.size=1", ">= 2"]),
        ("source.adam_eps=0", ["source.adam_eps=0", "> 0"]),
        ("source.learning_rate=nan", ["source.learning_rate", "nan"]),
        ("model.attention_dropout=1", ["model.attention_dropout=1", "<= 0.99"]),
        ("model.position=alibi", ["model.position=alibi", "rope"]),
        ("name=../elsewhere", ["name=../elsewhere"]),
        ("model.num_heads=3", ["model.num_heads=3", "model.embed_dim=8"]),
        ("model.context_len=26", ["model.context_len=26", "25 steps"]),
        ("source.num_env_steps=64", ["source.num_env_steps=64", "multiple", "10"]),
        ("summaries.code_snapshots=[no.py]", ["summaries.code_snapshots=no.py", "does not exist"]),
        ("evals.num_eval_environments=25", ["evals.num_eval_environments=25", "evals.num_eval_episodes=24"]),
        ("evaluation.num_episodes=6", ["evaluation.num_episodes=6", "source.history_steps=50"]),
        ("tasks.num_train=8", ["tasks.num_train=8", "tasks.num_held_out=0", "has 8 tasks", "at least one held out"]),
    ],
)
def test_options(tmp_path: Path, option: str, parts: list[str]) -> None:
    outcome = run("train_agents", tmp_path / "root", option)
    assert all(part in outcome.refusal for part in parts), outcome
    assert outcome.err == f"error: {outcome.refusal}\n"
    assert outcome.out == ""
    assert not (tmp_path / "root").exists()


def test_no_experiment_takes_the_place_of_another(tmp_path: Path) -> None:
    outcome = run("train_agents", tmp_path / "root", preset=("experiment=tiny", "seed=1", "experiment=searcher"))
    assert outcome.refusal.startswith("experiment=tiny experiment=searcher: ") and "give one" in outcome.refusal
    assert not (tmp_path / "root").exists()


PLAIN = [option for option in TINY if not option.startswith("source.hidden_size")]  # not all sources have a network


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("noise_distillation", ("source.teacher=nobody",)),
        (
            "q_learning",
            ("source.offline_buffer_dir=nobody", "source.mini_batch_length=1", "source.mini_batch_size=2"),
        ),
    ],
)
def test_a_source_that_is_refused_leaves_nothing(tmp_path: Path, source: str, wrong: tuple[str, ...]) -> None:
    """So that the command without the mistake works."""
    assert "nobody" in run("train_agents", tmp_path, f"source={source}", *wrong, preset=PLAIN).refusal
    assert files_of(tmp_path) == {}
    outcome = run("train_agents", tmp_path, f"source={source}", preset=PLAIN)
    assert outcome.code == 0, outcome.err


@pytest.mark.parametrize("options", [("source.teacher=nobody",), ()])
def test_the_environment_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]) -> None:
    """After a refusal too."""
    closed: list[DarkRoom] = []

    def close(self: DarkRoom) -> None:
        closed.append(self)

    monkeypatch.setattr(DarkRoom, "close", close)
    monkeypatch.setattr(train_agents, "make_env", lambda config, device: made.append(make_env(config)) or made[0])
    made: list[TensorEnv] = []
    outcome = run(
        "train_agents", tmp_path, "source=noise_distillation", "source.evaluate=false", *options, preset=PLAIN
    )
    assert outcome.code == (2 if options else 0), outcome.err
    assert len(made) == 1 and made[0] in closed


def test_learners_of_a_teacher_share_the_streams_of_evaluations(tmp_path: Path) -> None:
    assert run("train_agents", tmp_path, "source.num_learners=3", "name=teacher").code == 0
    before = files_of(tmp_path)
    pupil = ("source=noise_distillation", "source.teacher=teacher", "source.num_envs=3", "source.history_steps=60")
    options = (*pupil, "source.num_env_steps=75", "evaluation.num_episodes=2")
    refusal = run("train_agents", tmp_path, *options, preset=PLAIN).refusal
    fields = ("source.num_learners=1", "evals.num_eval_environments=8", "3 learners", "source.teacher=teacher")
    assert all(part in refusal for part in fields), refusal
    assert files_of(tmp_path) == before
    for option in ("evals.num_eval_environments=6", "source.evaluate=false"):
        outcome = run("train_agents", tmp_path, *options, option, f"name={option[:6]}", preset=PLAIN)
        assert outcome.code == 0, outcome.err


@pytest.mark.parametrize("stage", ["train_gpt", "evaluate"])
@pytest.mark.parametrize("option", ["colour=red", "model.num_heads=3", "env.size=1"])
def test_options_of_later_stages(root: Path, stage: str, option: str) -> None:
    before = files_of(root)
    assert option.split("=", maxsplit=1)[0] in run(stage, root, option, "name=new").refusal
    assert files_of(root) == before


def test_no_window_is_left(root: Path) -> None:
    before = files_of(root)
    message = run("train_gpt", root, "data.keep_every=20", "name=new", "histories=tiny").refusal
    assert "model.context_len=8" in message
    assert "data.keep_every=[20]" in message
    assert files_of(root) == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu(tmp_path: Path) -> None:
    assert "device.type=cuda" in run("train_agents", tmp_path / "root", "device=cuda").refusal
    assert not (tmp_path / "root").exists()


# ---- what an earlier stage should have left


def test_stages_in_the_wrong_order(tmp_path: Path) -> None:
    assert "python -m src.train_agents" in run("train_gpt", tmp_path / "root").refusal
    assert "python -m src.train_gpt" in run("evaluate", tmp_path / "root").refusal
    assert not (tmp_path / "root").exists()


def test_unfinished_stages(root: Path) -> None:
    edit_manifest(root / "histories/tiny", lambda manifest: manifest | {"complete": False, "committed": 0})
    (root / "logs/tiny/gpt/finished.json").unlink()
    before = files_of(root)
    assert "not complete" in run("train_gpt", root, "name=new", "histories=tiny").refusal
    assert "no finished training" in run("evaluate", root, "name=new", "run=tiny").refusal
    assert files_of(root) == before


def test_evaluation_without_histories(root: Path) -> None:
    shutil.rmtree(root / "histories")
    assert "no histories" in run("evaluate", root, "name=new", "run=tiny", "histories=tiny").refusal


# ---- damaged histories


def edit_manifest(folder: Path, change: Callable[[Any], Any]) -> None:
    path = folder / "manifest.json"
    write_json(path, change(read_json(path)))


def swap_first_tasks(path: Path) -> None:
    """The checksum stays as it was."""
    manifest = json.loads(path.read_text())
    train, held_out = manifest["tasks"]["train"], manifest["tasks"]["held_out"]
    train[0], held_out[0] = held_out[0], train[0]
    path.write_text(json.dumps(manifest))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a flipped byte": (lambda f: flip(f / "action.npy", -1), "action.npy is damaged"),
    "a flipped byte in a header": (lambda f: flip(f / "action.npy", 12), "action.npy cannot be read"),
    "another shape in a header": (lambda f: flip(f / "obs.npy", 62), "obs.npy"),
    "a truncated column": (lambda f: os.truncate(f / "reward.npy", 300), "reward.npy cannot be read"),
    "an empty column": (lambda f: os.truncate(f / "reward.npy", 0), "reward.npy cannot be read"),
    "a missing column": (lambda f: (f / "next_obs.npy").unlink(), "next_obs.npy cannot be read"),
    "another dtype": (lambda f: np.save(f / "obs.npy", np.zeros((10, 25))), "float64"),
    "an archive": (lambda f: np.savez((f / "obs.npy").open("wb"), obs=np.zeros(3)), "obs.npy cannot be read"),
    "garbage for a manifest": (lambda f: (f / "manifest.json").write_bytes(b"\xff\x00{"), "manifest.json"),
    "an empty manifest": (lambda f: (f / "manifest.json").write_text(""), "manifest.json"),
    "a manifest of another form": (lambda f: (f / "manifest.json").write_text("[1, 2]"), "manifest.json is damaged"),
    "a newer manifest": (lambda f: edit_manifest(f, lambda m: m | {"schema_version": 4}), "schema version 3"),
    "a manifest without columns": (lambda f: edit_manifest(f, lambda m: m | {"columns": {}}), "schema version 3"),
    "columns that say nothing": (
        lambda f: edit_manifest(f, lambda m: m | {"columns": dict.fromkeys(m["columns"])}),
        "not a manifest of schema version 3",
    ),
    "another split of tasks": (lambda f: swap_first_tasks(f / "manifest.json"), "manifest.json is damaged"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_histories(root: Path, damage: str) -> None:
    do, message = DAMAGES[damage]
    do(root / "histories/tiny")
    before = files_of(root)
    for stage in ("train_gpt", "evaluate"):
        outcome = run(stage, root, "name=new", "histories=tiny", "run=tiny")
        assert message in outcome.refusal
        assert outcome.err == f"error: {outcome.refusal}\n"
    assert files_of(root) == before


def test_histories_are_not_unpickled(root: Path, tmp_path: Path) -> None:
    column, mark = root / "histories/tiny/obs.npy", tmp_path / "mark"
    np.save(column, np.array([Exploit(mark)], dtype=object), allow_pickle=True)
    assert "obs.npy cannot be read" in run("train_gpt", root, "name=new", "histories=tiny").refusal
    column.write_bytes(b"cos\nmkdir\n(V" + str(mark).encode() + b"\ntR.")
    assert "obs.npy cannot be read" in run("train_gpt", root, "name=new", "histories=tiny").refusal
    assert not mark.exists()


# ---- damaged checkpoints


CHECKPOINT_DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped byte": lambda path: flip(path, 5000),
    "half of it": lambda path: os.truncate(path, path.stat().st_size // 2),
    "no state": lambda path: path.unlink(),
    "no sidecar": lambda path: path.with_suffix(".json").unlink(),
    "a garbled sidecar": lambda path: path.with_suffix(".json").write_text("{"),
    "a foreign sidecar": lambda path: path.with_suffix(".json").write_text('{"sha256": "0"}'),
    "a sidecar that says something else": lambda path: replace_in(path.with_suffix(".json"), '"seed": 0', '"seed": 1'),
}


def replace_in(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize("damage", CHECKPOINT_DAMAGES)
@pytest.mark.parametrize("stage", CHECKPOINTS)
def test_an_older_checkpoint_replaces_a_damaged_one(finished: Path, root: Path, stage: str, damage: str) -> None:
    folder = root / CHECKPOINTS[stage]
    (folder / "finished.json").unlink()
    CHECKPOINT_DAMAGES[damage](folder / "last-000000006.pt")
    outcome = run(stage, root)
    assert outcome.code == 0, outcome
    assert results_of(root) == results_of(finished)


@pytest.mark.parametrize("stage", CHECKPOINTS)
def test_no_good_checkpoint(root: Path, stage: str) -> None:
    folder = root / CHECKPOINTS[stage]
    (folder / "finished.json").unlink()
    for state in folder.glob("last-*.pt"):
        flip(state, 5000)
    before = files_of(root)
    message = run(stage, root).refusal
    assert str(folder / "last-000000004.pt") in message
    assert "delete it and its .json to go on" in message
    assert files_of(root) == before


@pytest.mark.parametrize("stage", CHECKPOINTS)
def test_what_is_finished_is_not_begun_anew_where_its_checkpoints_are_gone(root: Path, stage: str) -> None:
    """Nor called done, for any settings; with `finished.json` gone too, histories would be overwritten."""
    folder = root / CHECKPOINTS[stage]
    for path in folder.glob("last-*"):
        path.unlink()
    if stage == "train_agents":
        (folder / "finished.json").unlink()
    before = files_of(root)
    message = run(stage, root).refusal
    assert str(folder) in message and "gone" in message and "remove" in message
    assert files_of(root) == before


@pytest.mark.parametrize(
    ("stage", "file"),
    [
        *(("train_agents", "logs/tiny/source/finished.json"), ("train_gpt", "logs/tiny/gpt/finished.json")),
        ("evaluate", "logs/tiny/evaluation/results.json"),
    ],
)
def test_a_result_that_is_another_mapping_is_refused(root: Path, stage: str, file: str) -> None:
    for content in ("{}", "[]", '{"updates": 6}'):
        (root / file).write_text(content)
        assert (
            f"{file} is damaged, or of another version: its checksum is not the one it holds"
            in run(stage, root).refusal
        )


def test_a_damaged_model_is_not_evaluated(root: Path) -> None:
    (best,) = (root / "logs/tiny/gpt").glob("best-*.pt")
    flip(best, 5000)
    before = files_of(root)
    assert best.name in run("evaluate", root, "name=new", "run=tiny", "histories=tiny").refusal
    assert files_of(root) == before


def test_checkpoints_are_not_unpickled(root: Path, tmp_path: Path) -> None:
    """Not even with the right checksum beside them."""
    mark, folder = tmp_path / "mark", root / "logs/tiny/gpt"
    (folder / "finished.json").unlink()
    for state in folder.glob("*.pt"):
        torch.save({"model": Exploit(mark)}, state)
        sidecar = state.with_suffix(".json")
        write_json(sidecar, read_json(sidecar) | {"state_sha256": sha256(state)})
    for stage in ("train_gpt", "evaluate"):
        outcome = run(stage, root, "name=tiny")
        assert "cannot be read" in outcome.refusal
        assert "weights_only" not in outcome.err  # the advice of torch.load to run the exploit
    assert not mark.exists()


# ---- disks


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The system refuses to write past `size` bytes of a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("size", "last_stage", "part"),
    [
        (100, "train_agents", "obs.npy"),
        (250, "train_agents", "cannot reserve"),
        (2_000, "train_agents", "manifest.json"),
        (10_000, "train_agents", "last-000000002.pt"),
        (20_000, "train_agents", "goals.png"),
        (20_000, "train_gpt", "last-000000002.pt"),
        (20_000, "evaluate", "adaptation.png"),
    ],
)
def test_a_full_disk_is_an_error_and_no_end(
    finished: Path, tmp_path: Path, size: int, last_stage: str, part: str
) -> None:
    for stage in list(STAGES)[: list(STAGES).index(last_stage)]:
        run(stage, tmp_path)
    with largest_file(size):
        message = run(last_stage, tmp_path).refusal
    assert "File too large" in message
    assert part in message
    outcome = run(last_stage, tmp_path)
    assert outcome.code == 0, outcome
    found, expected = results_of(tmp_path), results_of(finished)
    assert found == {name: expected[name] for name in found}


def test_no_room_for_curves(tmp_path: Path) -> None:
    with largest_file(20_000):
        outcome = run("train_agents", tmp_path, "source.num_env_steps=600")
    assert "cannot write curves" in outcome.refusal
    assert run("train_agents", tmp_path, "source.num_env_steps=600").code == 0


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system has no such call")
def test_no_room_for_histories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    outcome = run("train_agents", tmp_path)
    assert "cannot reserve" in outcome.refusal
    assert "No space left on device" in outcome.refusal


@pytest.mark.parametrize(("stage", "writes"), [("train_agents", 12), ("train_agents", 30), ("train_gpt", 15)])
def test_a_disk_that_fills_up(
    finished: Path, root: Path, monkeypatch: pytest.MonkeyPatch, stage: str, writes: int
) -> None:
    """From the given sync on there is no room, for no later write either."""
    shutil.rmtree(root / CHECKPOINTS[stage])
    if stage == "train_agents":
        shutil.rmtree(root / "histories")
    real, left = os.fsync, [writes]

    def fsync(descriptor: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        assert "No space left on device" in run(stage, root).refusal
    outcome = run(stage, root)
    assert outcome.code == 0, outcome
    assert results_of(root) == results_of(finished)


def test_a_root_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for stage in STAGES:
        assert str(tmp_path / "file") in run(stage, tmp_path / "file").refusal
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.parametrize("stage", STAGES)
def test_logs_that_cannot_be_written(finished: Path, root: Path, stage: str) -> None:
    """A file stands where the folder should be, which stops root too."""
    name = {"train_agents": "logs/tiny/source", "train_gpt": "logs/new", "evaluate": "logs/new"}[stage]
    shutil.rmtree(root / name, ignore_errors=True)
    if stage == "train_agents":
        shutil.rmtree(root / "histories/tiny")
    (root / name).write_text("in the way")
    options = () if stage == "train_agents" else ("name=new", "histories=tiny", "run=tiny")
    assert name in run(stage, root, *options).refusal
    (root / name).unlink()
    assert run(stage, root, *options).code == 0
    if stage == "train_agents":
        assert results_of(root) == results_of(finished)


# Root may write anywhere: a program that gives that up and starts another one. 24: drop a capability for good;
# 1, 2: to override permissions.
OBEDIENT = """
import ctypes, os, sys
for capability in (1, 2):
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="takes Linux's capabilities")
def test_folders_without_permission(root: Path) -> None:
    """Of what another stage has written nothing is lost, and with permission the same command works."""
    (root / "logs/tiny/gpt/finished.json").unlink()
    before = files_of(root)
    folders = [root / "logs/tiny/gpt", root / "logs/tiny", root / "histories"]
    for folder in folders:
        folder.chmod(0o500)
    for stage, options in (("train_agents", ["name=new"]), ("train_gpt", [])):
        outcome = ended(start(stage, root, *options, through=[sys.executable, "-c", OBEDIENT]))
        assert "Permission denied" in outcome.refusal
        assert str(root) in outcome.refusal
    for folder in folders:
        folder.chmod(0o700)
    assert files_of(root) == before
    assert run("train_gpt", root).code == 0
