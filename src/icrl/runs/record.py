"""Record of a run, written when it starts: options, command, code, versions, host.

run.json        {"sessions": [...]}, one entry for each time the run is started or resumed
code.diff       diff of the first session's code to its revision; code-<k>.diff for the k-th session, or with the next
                free number after a run.json that was damaged
"""

import os
import platform
import secrets
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch

from icrl.config.options import MOST_SEEDS, refuse
from icrl.contracts import Json, PipelineError
from icrl.runs import files
from icrl.runs.processes import say

_MAX_DIFF = 100_000  # characters
_GIT_SECONDS = 30
_RECORDS = ("run", "results", "config")  # JSON files with the configuration of a run
_GIT = {"revision": (str, type(None)), "dirty": (bool, type(None))}
_FORM = {"sessions": [{"started": str, "git": _GIT}]}


def git_state(project: Path) -> Json:
    """State of the repository: `revision`, whether `project` is `dirty`, and `diff` with the names of untracked files,
    cut after 100 000 characters. `revision` and `dirty` are None without git or a commit. Never raises."""
    try:
        revision = _git(project, "rev-parse", "HEAD").strip()
        untracked = _git(project, "ls-files", "--others", "--exclude-standard", "--directory", "--no-empty-directory")
        diff = _git(project, "diff", "HEAD", "--no-color", "--no-ext-diff", "--no-textconv", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return {"revision": None, "dirty": None, "diff": ""}
    text = "".join(f"# untracked: {name}\n" for name in untracked.splitlines()) + diff
    if len(text) > _MAX_DIFF:
        text = f"{text[:_MAX_DIFF]}\n# cut: {_MAX_DIFF} of {len(text)} characters\n"
    return {"revision": revision, "dirty": bool(text), "diff": text}


def _git(project: Path, *arguments: str) -> str:
    command = ["git", "-C", str(project), *arguments]
    done = subprocess.run(command, capture_output=True, check=True, timeout=_GIT_SECONDS)
    return done.stdout.decode(errors="replace")


def record_session(config: Any, folder: Path, owner: files.Identity, step: int, project: Path = files.PROJECT) -> None:
    """Add a session of the run `owner`, which starts at `step`, to `folder`/run.json, and its diff beside it.

    A run.json that is damaged or from another run is renamed to run.json.damaged; training continues."""
    git, path, sessions, diff = git_state(project), folder / "run.json", list[Json](), None
    if path.exists():
        try:
            sessions = read_sessions(path, owner)
        except PipelineError:
            damaged = path.replace(f"{path}.damaged").name
            say(f"{path} is damaged, or of another run or version; renamed it to {damaged} and started a new one")
    if git["dirty"]:
        numbers = count(len(sessions) + 1)
        names = (f"code-{number}.diff" if number > 1 else "code.diff" for number in numbers)
        diff = next(name for name in names if not (folder / name).exists())
        files.write_atomically(folder / diff, git["diff"].encode())
    session = {
        "started": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "command": sys.orig_argv,
        "config": config.model_dump(),
        "git": git | {"diff": diff},
        "versions": {"python": platform.python_version(), "torch": torch.__version__}
        | {"numpy": np.__version__, "cuda": torch.version.cuda},
        "host": {"name": platform.node(), "system": platform.platform(), "cores": os.cpu_count()}
        | {"gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]},
    }
    files.write_owned(path, owner, step, {"sessions": [*sessions, session]})


def record_end(folder: Path, owner: files.Identity, step: int) -> None:
    """Add to the newest session in `folder`/run.json that it ended now, after `step`, unless that file is damaged."""
    with suppress(PipelineError):
        *before, newest = read_sessions(folder / "run.json", owner)
        newest["ended"] = datetime.now(UTC).isoformat(timespec="milliseconds")
        files.write_owned(folder / "run.json", owner, step, {"sessions": [*before, newest]})


def read_sessions(path: Path, owner: files.Identity) -> list[Json]:
    """Sessions in the run.json of the run `owner`."""
    written, owner_there, _ = files.read_owned(path, _FORM)
    files.check_owner(path, owner_there, owner)
    return written["sessions"]


def seed_of(root: Path, name: str) -> int:
    """Seed that the histories or logs of the run `name` under `root` record, or else a new random one. Raises
    `ConfigError` where each of several processes would draw its own."""
    logs = sorted((root / "logs" / name).glob("*/*.json"))
    for path in (root / "histories" / name / "manifest.json", *(path for path in logs if path.stem in _RECORDS)):
        with suppress(PipelineError), files.content_of(path, PipelineError):  # missing or damaged
            content = files.read_json(path)
            config = content.get("config") or content.get("sessions", [content])[-1].get("config", content)
            if type(seed := config.get("seed")) is int and 0 <= seed <= MOST_SEEDS:
                return seed
    refuse("RANK" in os.environ, "seed=null: each process of torchrun would draw a seed of its own; give a number")
    return secrets.randbelow(MOST_SEEDS)
