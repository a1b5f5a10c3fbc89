"""Files that are whole or not there, on full disks and with several runs at a time."""

import errno
import json
import multiprocessing
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from icrl.contracts import PipelineError
from icrl.runs.files import digest, fits, only_writer, read_json, reserve, write_atomically, write_json


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """The operating system lets no file grow beyond `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_write_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    for content in (b"old and long", b"new"):
        write_atomically(path, content)
        assert path.read_bytes() == content
    assert names(path.parent) == ["file"]


@pytest.mark.parametrize("where", ["os.fsync", "pathlib.Path.replace"])
def test_a_failed_write_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    monkeypatch.setattr(where, full_disk)
    with pytest.raises(PipelineError, match="cannot write .*/file: No space left on device"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("dies_at", [0, 1])
def test_a_killed_write_leaves_old_or_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: int) -> None:
    """Before the rename the old content stays; after it, at the sync of the folder, the new is there, whole."""
    path = tmp_path / "file"
    write_atomically(path, b"old")
    syncs = iter(range(10))

    def dying(_: int) -> None:
        if next(syncs) == dies_at:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", dying)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert path.read_bytes() == [b"old", b"new"][dies_at]


def test_json_round_trip_and_damage(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    value = {"a": [1, 2.5, None, True], "b": {"c": "ä"}}
    write_json(path, value)
    written = json.loads(path.read_text())
    assert read_json(path) == value == {key: written[key] for key in value}
    assert written["sha256"] == digest({"b": {"c": "ä"}, "a": [1, 2.5, None, True]})
    for content in (value, written | {"a": [1]}, written | {"c": 1}, written | {"sha256": None}, {}, [], 3):
        path.write_text(json.dumps(content))
        with pytest.raises(PipelineError, match=r"file\.json is damaged, or of another version"):
            read_json(path)
    write_json(path, value)
    for content in (path.read_bytes()[:-3], b"", b"\xff\xfe"):
        path.write_bytes(content)
        with pytest.raises(PipelineError, match=r"file\.json is not readable"):
            read_json(path)
    with pytest.raises(PipelineError, match=r"nowhere\.json"):
        read_json(tmp_path / "nowhere.json")


@pytest.mark.parametrize("way", ["posix_fallocate", "by writing"])
def test_reserve_gives_space_and_keeps_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"head")
    if way == "by writing":
        monkeypatch.delattr(os, "posix_fallocate")
    reserve(path, 100_000)
    assert path.read_bytes() == b"head" + bytes(99_996)
    if way == "posix_fallocate":
        assert path.stat().st_blocks * 512 >= 100_000  # real space, no hole


@pytest.mark.parametrize("why", ["the disk is full", "the operating system", "the operating system, by writing"])
def test_reserve_without_space_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"head")
    if why == "the disk is full":
        monkeypatch.setattr(os, "posix_fallocate", full_disk)
    if why.endswith("by writing"):
        monkeypatch.delattr(os, "posix_fallocate")
    with file_size_limit(10_000), pytest.raises(PipelineError, match=r"cannot reserve 0\.1 MB for .*/file"):
        reserve(path, 100_000)


FORK = multiprocessing.get_context("fork")  # cheap, and the child needs no threads


def hold(folder: Path, pipe: Connection) -> None:
    """In another process: write in `folder` until killed, or say why not."""
    try:
        with only_writer(folder):
            pipe.send("holding")
            signal.pause()
    except PipelineError as error:
        pipe.send(str(error))


@contextmanager
def second_process(folder: Path) -> Iterator[str]:
    """What another process that wants to write in `folder` says; it is killed at the end."""
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=hold, args=(folder, theirs))
    process.start()
    try:
        assert ours.poll(30)
        yield ours.recv()
    finally:
        process.kill()
        process.join()


def test_a_second_process_is_refused_until_the_first_is_done(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with only_writer(folder):
        with second_process(folder) as said:
            assert said == f"another run is writing to {folder}: wait for it, or give another name="
        with second_process(tmp_path / "other") as said:
            assert said == "holding"
    with second_process(folder) as said:
        assert said == "holding"


@pytest.mark.parametrize(
    ("content", "form", "fitting"),
    [
        (3, int, True),
        (True, int, False),
        (3, float, True),
        (3.0, int, False),
        (None, (str, type(None)), True),
        (3, (str, type(None)), False),
        ([1, 2], [int], True),
        ([], [int], True),
        ([1, "2"], [int], False),
        ({"a": 1, "b": []}, {"a": int}, True),
        ({"b": []}, {"a": int}, False),
        ([], {"a": int}, False),
        ({"x": 1, "y": 2}, {str: int}, True),
        ({"x": 1, "y": "2"}, {str: int}, False),
        ({"x": {"a": [[1.5]]}}, {str: {"a": [[float]]}, "x": dict}, True),
        ({"x": 1}, {str: int, "a": int}, False),
    ],
)
def test_what_fits_a_form(content: object, form: object, *, fitting: bool) -> None:
    assert fits(content, form) is fitting


def test_json_of_another_form_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_json(path, {"a": 1})
    assert read_json(path, {"a": int}) == {"a": 1}
    with pytest.raises(PipelineError, match=r"file\.json has unexpected content"):
        read_json(path, {"a": str})
    path.write_text("[" * 100_000)
    with pytest.raises(PipelineError, match=r"file\.json is not readable"):
        read_json(path)
