"""Files that are whole or not there, on full disks and with several runs at a time, and that say whose they are."""

import errno
import fcntl
import json
import os
import re
from typing import Any
from unittest.mock import Mock

import pytest
from harness import file_size_limit
from hypothesis import given, settings
from hypothesis import strategies as st

from icrl.app.compose import load_config
from icrl.contracts import PipelineError
from icrl.runs import files
from icrl.runs.files import Identity, has_form, identity_of, only_writer, read_json, read_owned, write_atomically


def test_write_replaces_and_leaves_nothing_else(tmp_path, monkeypatch):
    """Where it fails the old content stays."""
    path = tmp_path / "new" / "folder" / "file"
    for content in (b"old and long", b"new"):
        write_atomically(path, content)
        assert path.read_bytes() == content
    for where in ("os.fsync", "pathlib.Path.replace"):
        with monkeypatch.context() as patch:
            patch.setattr(where, Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
            with pytest.raises(PipelineError, match="cannot write .*/file: No space left on device"):
                write_atomically(path, b"newer")
    assert path.read_bytes() == b"new"
    assert [file.name for file in path.parent.iterdir()] == ["file"]


def test_json_round_trip_and_damage(tmp_path):
    path = tmp_path / "file.json"
    value = {"a": [1, 2.5, None, True], "b": {"c": "ä"}}
    files.write_json(path, value)
    text = path.read_text()
    written = json.loads(text)
    assert read_json(path, {"a": list}) == value == {key: written[key] for key in value}
    assert written["sha256"] == files.digest({"b": {"c": "ä"}, "a": [1, 2.5, None, True]})
    with pytest.raises(PipelineError, match=r"file\.json has unexpected content"):
        read_json(path, {"a": str})
    for content in (value, written | {"a": [1]}, written | {"c": 1}, written | {"sha256": None}, {}, [], 3):
        path.write_text(json.dumps(content))
        with pytest.raises(PipelineError, match=r"file\.json is damaged: its checksum is wrong"):
            read_json(path)
    for content in (text.encode()[:-3], b"", b"\xff\xfe", b"[" * 100_000):
        path.write_bytes(content)
        with pytest.raises(PipelineError, match=r"file\.json is not readable"):
            read_json(path)
    with pytest.raises(PipelineError, match=r"nowhere\.json"):
        read_json(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    ("content", "form", "fitting"),
    [
        (True, int, False),
        (3, float, True),
        (3.0, int, False),
        (None, (str, type(None)), True),
        (3, (str, type(None)), False),
        ([1, "2"], [int], False),
        ({"a": 1, "b": []}, {"a": int}, True),
        ({"b": []}, {"a": int}, False),
        ({"x": {"a": [[1.5]]}}, {str: {"a": [[float]]}, "x": dict}, True),
        ({"x": 1}, {str: int, "a": int}, False),
    ],
)
def test_what_fits_a_form(content, form, *, fitting):
    assert has_form(content, form) is fitting


@pytest.mark.parametrize("way", ["posix_fallocate", "by writing"])
def test_reserve_gives_space_or_is_an_error(tmp_path, monkeypatch, way):
    """And keeps what is there."""
    path = tmp_path / "file"
    path.write_bytes(b"head")
    if way == "by writing":
        monkeypatch.delattr(os, "posix_fallocate")
    with path.open("r+b") as file:
        with file_size_limit(10_000), pytest.raises(PipelineError, match=r"cannot reserve 0\.1 MB for .*/file"):
            files.reserve(file, 100_000, path)
        files.reserve(file, 100_000, path)
    assert path.read_bytes() == b"head" + bytes(99_996)
    if way == "posix_fallocate":
        assert path.stat().st_blocks * 512 >= 100_000  # real space, no hole


def test_a_second_run_is_refused_until_the_first_is_done(tmp_path, monkeypatch):
    """A lock is of an open file: this process is refused its second one as another process would be."""
    folder = tmp_path / "run"
    with only_writer(folder), only_writer(tmp_path / "other"):
        said = f"^another run is writing to {folder}: wait for it, or give another name=$"
        with pytest.raises(PipelineError, match=said):
            only_writer(folder).__enter__()
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOLCK, "No locks available")))
    with pytest.raises(PipelineError, match=f"^cannot lock {folder}: No locks available$"):
        only_writer(folder).__enter__()
    monkeypatch.undo()
    (tmp_path / "file").touch()
    with only_writer(folder), pytest.raises(PipelineError, match=r"cannot write to .*/file/run: Not a directory"):
        only_writer(tmp_path / "file/run").__enter__()


GROUPS = ("seed", "model", "trainer", "checkpoints", "optimizer")
SAME = ["name=other", "root=elsewhere", "num_threads=2", "checkpoints.keep_last=9", "env.size=7", "histories=[a,b]"]
SAME += ["trainer.num_iterations=7"]  # a longer run is the same one
OTHER = ["seed=1", "model.embed_dim=64", "trainer.mini_batch_size=7", "optimizer.learning_rate=0.5"]
INPUTS = {"histories": ["abc"], "critic": "def"}


def identity(options: list[str], program: str = "train_gpt", inputs: Any = INPUTS) -> Identity:
    return identity_of(program, load_config(["experiment=tiny", *options]), GROUPS, inputs)


@settings(max_examples=8)
@given(same=st.sets(st.sampled_from(SAME)), other=st.sets(st.sampled_from(OTHER)))
def test_a_run_is_what_decides_what_it_computes(same, other):
    """The same wherever it is and whatever it is called, another one for all that changes results."""
    assert (identity([*sorted(same), *sorted(other)]) == identity([])) == (not other)


def test_program_and_inputs_count_too_but_not_how_a_number_is_written():
    different = (None, INPUTS, INPUTS | {"histories": ["abd"]}, INPUTS | {"critic": 1.5})
    assert len({identity([], "extract_policy").run, *(identity([], inputs=inputs).run for inputs in different)}) == 5
    assert identity([], inputs={"a": [1.0, {"b": 1e3}]}) == identity([], inputs={"a": (1, {"b": 1000})})


def test_a_file_says_whose_it_is_and_is_refused_elsewhere(tmp_path):
    path, owner, other = tmp_path / "file.json", Identity("train_gpt", "a" * 64), Identity("train_ilql", "b" * 64)
    files.write_owned(path, owner, 7, {"found": [1.5]})
    assert read_owned(path, {"found": [float]}) == ({"found": [1.5]}, owner, 7)
    files.check_owner(path, owner, Identity(*owner))
    said = f"{path} is from train_gpt (run aaaaaaaaaaaa), but train_ilql (run bbbbbbbbbbbb) is needed here: "
    with pytest.raises(PipelineError, match=re.escape(said)):
        files.check_owner(path, owner, other)
    with pytest.raises(PipelineError, match="has unexpected content"):
        read_owned(path, {"found": [str]})
