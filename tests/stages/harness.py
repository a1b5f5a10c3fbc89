"""Whole stages at the smallest size at which each of their parts still does something, and what they leave behind."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

from src import evaluate, train_agents, train_gpt
from src.config import PROJECT
from src.files import sha256
from src.runtime import run_stage

STAGES = {"train_agents": train_agents.main, "train_gpt": train_gpt.main, "evaluate": evaluate.main}

# A run of 6 updates in both stages, with checkpoints amid it, a life that is longer than what is recorded of it, dropout
# (so that the generator's state counts) and evaluations that fall on checkpoints and between them.
TINY = (
    *("name=tiny", "device=cpu", "num_threads=1"),
    *("env.size=3", "env.max_episode_steps=4", "tasks.num_train=5"),
    *("source.num_learners=1", "source.num_envs=2", "source.rollout_len=5", "source.hidden_size=8"),
    *("source.num_env_steps=60", "source.history_steps=50", "source.checkpoint_interval=10"),
    *("source.log_interval=1", "source.videos_per_task=0"),
    *("data.keep_every=1", "data.num_validation_tasks=2"),
    *("model.context_len=8", "model.embed_dim=8", "model.num_layers=1", "model.num_heads=2", "model.ff_dim=16"),
    *("model.residual_dropout=0.1", "model.attention_dropout=0.1"),
    *("trainer.num_updates=6", "trainer.batch_size=4", "trainer.log_interval=1", "trainer.checkpoint_interval=2"),
    *("trainer.evaluation_interval=3", "trainer.evaluation_steps=12", "trainer.evaluation_streams=8"),
    *("evaluation.num_episodes=3", "evaluation.num_streams=2", "evaluation.num_train_streams=1"),
    *("evaluation.num_bootstrap=100", "evaluation.videos=false"),
)


class Outcome(NamedTuple):
    """How a command ended. Code 0: it finished; 2: it refused."""

    code: int
    out: str
    err: str

    @property
    def refusal(self) -> str:
        """The message of a command that refused, which is all it had to say."""
        assert self.code == 2, self
        message = self.err.strip("\r\n ").splitlines()[-1]
        assert message.startswith("error: "), self
        assert "Traceback" not in self.err, self
        return message.removeprefix("error: ")


def run(stage: str, root: Path, *options: str) -> Outcome:
    """Run a stage in this process, as its command line would."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    arguments = [f"src/{stage}.py", *TINY, f"root={root}", *options]
    with patch.object(sys, "argv", arguments), redirect_stdout(out), redirect_stderr(err):
        try:
            run_stage(STAGES[stage], f"src.{stage}", "")
        except SystemExit as end:
            code = int(end.code or 0)
    return Outcome(code, out.getvalue(), err.getvalue())


def start(stage: str, root: Path, *options: str) -> subprocess.Popen[str]:
    """Start a stage in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", f"src.{stage}", *TINY, f"root={root}", *options],
        cwd=PROJECT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> Outcome:
    out, err = process.communicate(timeout=200)
    return Outcome(process.returncode, out, err)


def files_of(root: Path) -> dict[str, tuple[str, int]]:
    """Checksum and time of the last change of every file but locks."""
    return {
        str(path.relative_to(root)): (sha256(path), path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def results_of(root: Path) -> dict[str, Any]:
    """What stages left in `root`, to be compared with another root: arrays and pictures bit for bit, checkpoints tensor
    by tensor, JSON without the root's name; no TensorBoard events, which carry the time of day, and of checkpoints the
    newest alone (a crash amid the deletion of an old one may leave it there)."""
    newest = {path.stem for kind in ("last", "best") for path in _newest(root, kind)}
    return {
        str(path.relative_to(root)): _content(path)
        for path in sorted(root.rglob("*"))
        if path.is_file()
        and path.name != ".lock"
        and not path.name.startswith("events.")
        and (path.name.split("-")[0] not in ("last", "best") or path.stem in newest)
    }


def _newest(root: Path, kind: str) -> list[Path]:
    return [max(folder.glob(f"{kind}-*.pt"), default=folder) for folder in root.glob("logs/*/*")]


def _content(path: Path) -> Any:
    if path.suffix == ".pt":
        return _plain(torch.load(path, map_location="cpu", weights_only=True))
    if path.suffix == ".json":
        return _without_root(json.loads(path.read_text()))
    return sha256(path)


def _without_root(content: Any) -> Any:
    """JSON without the name of the root and the checksum that covers it."""
    if not isinstance(content, dict):
        return content
    left_out = {"root"} | ({"sha256"} if "schema_version" in content else set())
    return {key: _without_root(value) for key, value in content.items() if key not in left_out}


def _plain(state: Any) -> Any:
    """Nested state with tensors as values that `==` compares bit for bit."""
    if isinstance(state, torch.Tensor):
        return str(state.dtype), tuple(state.shape), state.numpy().tobytes()
    if isinstance(state, Mapping):
        return {key: _plain(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [_plain(value) for value in state]
    return state
