"""Record of a run, against real git checkouts."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from icrl.app.compose import load_config
from icrl.contracts import PipelineError
from icrl.runs.files import Identity
from icrl.runs.record import git_state, read_sessions, record_session

OWNER = Identity("train_gpt", "f00d")
CONFIG = load_config(["experiment=tiny"])
UNKNOWN = {"revision": None, "dirty": None, "diff": ""}


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, check=True)
    return done.stdout.decode().strip()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one commit: code.py, lib/deep.py, and build/ ignored."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "src.train_gpt", "name=two words"])
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):  # of a hook that runs the tests
        monkeypatch.delenv(name, raising=False)
    project = tmp_path / "project"
    (project / "lib").mkdir(parents=True)
    (project / "code.py").write_text("x = 1\n")
    (project / "lib" / "deep.py").write_text("y = 1\n")
    (project / ".gitignore").write_text("build/\n")
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "first")
    return project


def record(folder: Path, project: Path, owner: Identity = OWNER) -> None:
    record_session(CONFIG, folder, owner, 0, project)


def test_a_clean_checkout_is_its_revision_and_no_checkout_is_no_error(project, tmp_path, monkeypatch):
    (project / "build").mkdir()
    (project / "build/ignored").write_text("z")
    os.utime(project / "code.py", (0, 0))
    clean = {"revision": git(project, "rev-parse", "HEAD"), "dirty": False, "diff": ""}
    assert git_state(project) == git_state(project / "lib") == clean
    (tmp_path / "bare").mkdir()
    git(tmp_path, "init", "-q", "empty")  # a checkout without a commit
    for folder in ("empty", "bare", "missing"):
        assert git_state(tmp_path / folder) == UNKNOWN
    (project / ".git" / "HEAD").write_text("broken")
    assert git_state(project) == UNKNOWN
    monkeypatch.setenv("PATH", "")
    assert git_state(project) == UNKNOWN


def test_all_changes_since_the_revision_are_there(project):
    """Staged, not staged and untracked; what is left of the diff can be applied to the revision."""
    (project / "code.py").write_text("x = 2\n")
    (project / "staged.py").write_text("s = 3\n")
    git(project, "add", "staged.py")
    (project / "lib" / "deep.py").write_bytes(b"y = '\xff'\n")
    (project / "notes").mkdir()
    (project / "notes" / "new.txt").write_text("not shown")
    state = git_state(project)
    assert state["dirty"] is True and state["revision"] == git(project, "rev-parse", "HEAD")
    lines = state["diff"].splitlines()
    assert lines[0] == "# untracked: notes/" and "not shown" not in state["diff"]
    assert {"-x = 1", "+x = 2", "+s = 3", "-y = 1", "+y = '\ufffd'"} <= set(lines)
    (project.parent / "patch").write_text(state["diff"])
    git(project, "reset", "-q", "--hard")
    git(project, "apply", str(project.parent / "patch"))
    assert (project / "code.py").read_text() == "x = 2\n"
    (project / "code.py").write_text("x" * 200_000)
    assert re.search(r"\n# cut: 100000 of 200\d{3} characters\n$", git_state(project)["diff"])


def test_every_session_is_kept_with_what_is_needed_to_run_it_again(project, tmp_path):
    folder, diffs = tmp_path / "run", []
    for content in ("x < '<b>'\n", "x < '<b>'\n", "x = 3\n"):
        (project / "code.py").write_text(content)
        diffs.append(git_state(project)["diff"])
        record(folder, project)
        if len(diffs) == 1:
            git(project, "commit", "-q", "-a", "-m", "second")
    sessions = read_sessions(folder / "run.json", OWNER)
    assert [session["git"]["dirty"] for session in sessions] == [True, False, True]
    assert [session["git"]["diff"] for session in sessions] == ["code.diff", None, "code-3.diff"]
    assert sessions[0]["git"]["revision"] != sessions[1]["git"]["revision"] == sessions[2]["git"]["revision"]
    found = {path.name: path.read_text() for path in folder.glob("*.diff")}
    assert found == {"code.diff": diffs[0], "code-3.diff": diffs[2]} and "+x = 3" in diffs[2]
    versions = {"python": sys.version.split()[0], "torch": torch.__version__, "numpy": np.__version__}
    for session in sessions:
        assert session["config"] == CONFIG.model_dump() and session["command"] == sys.orig_argv
        assert versions.items() <= session["versions"].items()
        assert session["host"]["cores"] >= 1 and len(session["host"]["gpus"]) == torch.cuda.device_count()


OTHERS = [Identity("train_gpt", "beef"), Identity("train_ilql", "f00d")]


@pytest.mark.parametrize("content", [b"{", b'{"sessions": {}}', *OTHERS], ids=str)
def test_a_record_that_is_damaged_or_of_another_run_is_kept_aside(project, tmp_path, content, capsys):
    """And with it the diff of its code."""
    path, of_another = tmp_path / "run.json", isinstance(content, Identity)
    (project / "code.py").write_text("x = 4\n")
    record(tmp_path, project, owner=content if of_another else OWNER)
    (project / "code.py").write_text("x = 5\n")
    if not of_another:
        path.write_bytes(content)
    before = path.read_bytes()
    for sessions in (1, 2):
        record(tmp_path, project)
        assert len(read_sessions(path, OWNER)) == sessions
    diffs = [(file.name, file.read_text()[-6:]) for file in sorted(tmp_path.glob("*.diff"))]
    assert diffs == [("code-2.diff", "x = 5\n"), ("code-3.diff", "x = 5\n"), ("code.diff", "x = 4\n")]
    assert (tmp_path / "run.json.damaged").read_bytes() == before
    told = "run.json is damaged, or of another run or version; renamed it to run.json.damaged"
    assert capsys.readouterr().out.count(told) == 1
    for other in OTHERS:
        with pytest.raises(PipelineError, match=r"run\.json is from train_gpt \(run f00d\), but "):
            read_sessions(path, other)
