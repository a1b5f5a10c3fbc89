"""Checkpoints: the newest whole one is found again whatever happened to the others."""

import itertools
import pickle
from pathlib import Path

import pytest
import torch
from harness import Exploit, flip

from icrl.contracts import PipelineError
from icrl.runs.checkpoint import DamagedCheckpointError, load, load_newest, open_finished, save
from icrl.runs.files import Identity, read_json, sha256, write_json, write_owned

CPU = torch.device("cpu")


def write(folder: Path, step: int, kind: str = "last", keep: int = 10) -> None:
    save(folder, kind, step, {"update": step, "weights": torch.full((3,), float(step))}, {}, keep)


def newest(folder: Path, kind: str = "last") -> int | None:
    found = load_newest(folder, kind, CPU)
    return None if found is None else found[0]["update"]


def spoil(path: Path, how: str) -> None:
    if how == "flip":
        flip(path, path.stat().st_size // 2)
    elif how == "missing":
        path.unlink()
    else:  # JSON ends with a newline, which nobody would miss
        path.write_bytes(path.read_bytes()[:-2] if how == "cut" else b"")


@pytest.mark.parametrize(
    ("suffix", "how"), [(".pt", "flip"), *itertools.product([".pt", ".json"], ["cut", "empty", "missing"])]
)
def test_a_damaged_one_is_passed_over(tmp_path, suffix, how):
    """Where all states are damaged it is an error with the name."""
    for step in (1, 2, 3):
        write(tmp_path, step)
    for step, left in ((3, 2), (2, 1)):
        spoil(tmp_path / f"last-00000000{step}{suffix}", how)
        assert newest(tmp_path) == left
    spoil(tmp_path / f"last-000000001{suffix}", how)
    if (suffix, how) == (".json", "missing"):
        assert newest(tmp_path) is None  # as after a crash before the sidecar was written
    else:
        with pytest.raises(DamagedCheckpointError, match=r"last-00000000\d\.pt"):
            newest(tmp_path)


@pytest.mark.parametrize(("kind", "step"), [("last", 3), ("best", 2), ("best", 3)])
def test_a_renamed_one_is_passed_over(tmp_path, kind, step):
    for number in (1, 2):
        write(tmp_path, number)
    for path in tmp_path.glob("last-000000002.*"):
        path.rename(path.with_stem(f"{kind}-{step:09d}"))
    with pytest.raises(DamagedCheckpointError, match=rf"{kind}-00000000{step}\.pt was written as last-000000002\.pt"):
        load(tmp_path / f"{kind}-{step:09d}.json", CPU)
    assert newest(tmp_path) == 1


def test_what_is_finished_is_of_one_run_and_at_its_end(tmp_path):
    about = {"program": "train_gpt", "run": "f00d"}
    for kind, step in (("last", 4), ("last", 6), ("best", 2)):
        save(tmp_path, kind, step, {"update": step}, about, 2)
    assert open_finished(tmp_path, "last", "train_gpt", CPU) is None
    ours = Identity("train_gpt", "f00d")
    wrong = [(Identity("train_gpt", "beef"), "train_gpt"), (Identity("extract_policy", "f00d"), "train_gpt")]
    for kind, step in (("last", 6), ("best", 2)):
        for owner, asked in (*wrong, (ours, "extract_policy")):
            write_owned(tmp_path / "finished.json", owner, 6, {})
            with pytest.raises(PipelineError, match=r" is from \w+ \(run \w+\), but \w+ \(run \w+\) is needed here"):
                open_finished(tmp_path, kind, asked, CPU)
        write_owned(tmp_path / "finished.json", ours, 6, {})
        state, sidecar = open_finished(tmp_path, kind, "train_gpt", CPU)
        assert state["update"] == sidecar["step"] == step
    spoil(tmp_path / "last-000000006.pt", "cut")
    with pytest.raises(PipelineError, match=r"but the newest intact checkpoint beside it is of step 4"):
        open_finished(tmp_path, "last", "train_gpt", CPU)


def test_old_ones_are_pruned_and_other_kinds_are_not(tmp_path):
    write(tmp_path, 1, kind="best")
    for step in (5, 10, 15, 20):
        write(tmp_path, step, keep=2)
    kept = ["best-000000001", "last-000000015", "last-000000020"]
    assert sorted(path.stem for path in tmp_path.glob("*.pt")) == kept
    assert sorted(path.stem for path in tmp_path.glob("*.json")) == kept and len([*tmp_path.iterdir()]) == 6


@pytest.mark.parametrize("form", ["torch", "pickle"])
def test_a_pickle_exploit_is_refused(tmp_path, form):
    """With a sidecar whose checksum is right, so that the file itself is looked at."""
    write(tmp_path, 1)
    path, harm = tmp_path / "last-000000001.pt", tmp_path / "harm"
    if form == "torch":
        torch.save({"update": 1, "bad": Exploit(harm)}, path)
    else:
        path.write_bytes(pickle.dumps(Exploit(harm)))
    sidecar = path.with_suffix(".json")
    write_json(sidecar, read_json(sidecar) | {"state_sha256": sha256(path)})
    with pytest.raises(DamagedCheckpointError, match=r"last-000000001\.pt cannot be read") as refused:
        load_newest(tmp_path, "last", CPU)
    assert not harm.exists() and "weights_only" not in str(refused.value)  # torch's advice to run the exploit
    torch.load(path, weights_only=False) if form == "torch" else pickle.loads(path.read_bytes())
    assert harm.exists()  # it would have worked
