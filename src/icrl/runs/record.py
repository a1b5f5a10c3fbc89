"""Record of a run, written when it starts: options, command, code, versions, host.

run.json        {"sessions": [...]}, one entry for each time the run is started or resumed
code.diff       diff of the first session's code to its revision; code-<k>.diff for the k-th session
"""

import os
import platform
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from icrl.config.paths import PROJECT
from icrl.contracts import ConfigError, Json, PipelineError
from icrl.runs.device import recorded
from icrl.runs.files import write_atomically
from icrl.runs.identity import Identity, check_owner, read_owned, write_owned
from icrl.runs.metrics import flatten

_MAX_DIFF = 100_000  # characters
_GIT_SECONDS = 30
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


def parameters_table(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """Markdown table of all parameters: shape, count, and the weight decay of the optimizer's group, or `frozen`.

    Raises `PipelineError` with the names of trainable parameters that are in no group."""
    decays = {id(p): group.get("weight_decay", 0.0) for group in optimizer.param_groups for p in group["params"]}
    named = dict(model.named_parameters())
    if forgotten := [name for name, p in named.items() if p.requires_grad and id(p) not in decays]:
        raise PipelineError(f"the parameters {', '.join(forgotten)} are in no group of the optimizer")
    lines = ["| parameter | shape | count | weight decay |", "|---|---|---:|---:|"]
    for name, p in named.items():
        decay = decays[id(p)] if p.requires_grad else "frozen"
        lines.append(f"| `{name}` | {tuple(p.shape)} | {p.numel():,} | {decay} |")
    lines.append(f"| all | | {sum(p.numel() for p in named.values()):,} | |")
    return "\n".join(lines)


def check_snapshots(paths: list[str], project: Path) -> list[Path]:
    """Absolute paths of `paths`, which are relative to `project`. Raises `ConfigError` if a path does not exist, is not
    a file or resolves to a place outside."""
    root = project.resolve()
    files = [(root / path).resolve() for path in paths]
    for path, file in zip(paths, files, strict=True):
        if not file.is_relative_to(root):
            raise ConfigError(f"summaries.code_snapshots={path} is outside the project {root}")
        if not file.is_file():
            reason = "is not a file" if file.exists() else "does not exist"
            raise ConfigError(f"summaries.code_snapshots={path} {reason} in {root}")
    return files


def write_run_record(
    folder: Path, project: Path, config: Json, command: list[str], snapshots: list[Path], owner: Identity, step: int
) -> Json:
    """Add a session of the run `owner`, which starts at `step`, to `folder`/run.json. Returns it for `texts`, with the
    diff and the `snapshots` (from `check_snapshots`); run.json has only their names and checksums.

    A run.json that is damaged or from another run is renamed to run.json.damaged; training continues."""
    session = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "config": config,
        "git": git_state(project),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "cuda": torch.version.cuda,
        },
        "host": {
            "name": platform.node(),
            "system": platform.platform(),
            "cores": os.cpu_count(),
            "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        },
        "code_snapshots": {
            file.relative_to(project.resolve()).as_posix(): file.read_text(encoding="utf-8", errors="replace")
            for file in snapshots
        },
    }
    path = folder / "run.json"
    sessions = _sessions(path, owner)
    name = f"code-{len(sessions) + 1}.diff" if sessions else "code.diff"
    dirty, diff = session["git"]["dirty"], session["git"]["diff"]
    if dirty:
        write_atomically(folder / name, diff.encode())
    brief = {
        "git": session["git"] | {"diff": name if dirty else None},
        "code_snapshots": {file: sha256(text.encode()).hexdigest() for file, text in session["code_snapshots"].items()},
    }
    write_owned(path, owner, step, {"sessions": [*sessions, session | brief]})
    return session


def record_session(config: Any, folder: Path, owner: Identity, step: int) -> dict[str, str]:
    """Record a session of a program with `config` that starts at `step`; returns its `texts`."""
    snapshots = check_snapshots(config.summaries.code_snapshots, PROJECT)
    return texts(write_run_record(folder, PROJECT, recorded(config), sys.argv, snapshots, owner, step))


def read_sessions(path: Path, owner: Identity) -> list[Json]:
    """Sessions in the run.json of the run `owner`. Raises `PipelineError` if the file belongs to another run."""
    written, found, _ = read_owned(path, _FORM)
    check_owner(path, found, owner)
    return written["sessions"]


def _sessions(path: Path, owner: Identity) -> list[Json]:
    """Earlier sessions; an invalid file is renamed."""
    if not path.exists():
        return []
    with suppress(PipelineError):
        return read_sessions(path, owner)
    damaged = path.with_name(f"{path.name}.damaged")
    path.replace(damaged)
    tqdm.write(f"{path} is damaged, or of another run or version; renamed it to {damaged.name} and started a new one")
    return []


def texts(session: Json) -> dict[str, str]:
    """Texts of a session for TensorBoard, tag -> markdown: configuration, command, git, code_snapshots/<file>."""
    git = session["git"]
    changes = f"with changes\n\n{_fenced(git['diff'])}" if git["dirty"] else "without changes"
    options = "\n".join(f"{key}: {value}" for key, value in flatten(session["config"]).items())
    return {
        "configuration": _fenced(options),
        "command": _fenced(shlex.join(session["command"])),
        "git": f"revision `{git['revision']}` {changes}" if git["revision"] else "not a git checkout",
    } | {f"code_snapshots/{name}": _fenced(text) for name, text in session["code_snapshots"].items()}


def _fenced(text: str) -> str:
    """Markdown code block with a fence longer than any in `text`."""
    fence = "`" * (1 + max([2, *map(len, re.findall("`+", text))]))
    return f"{fence}\n{text}\n{fence}"
