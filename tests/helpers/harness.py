"""Whole stages at the smallest size at which each of their parts still does something, and what they leave behind."""

import ctypes
import io
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from multiprocessing import get_context, resource_tracker
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from installed import EVALUATED_AGENTS
from matplotlib.figure import Figure
from PIL import Image
from toy import curves, plain

from icrl import extensions
from icrl.app.command_line import run_program
from icrl.app.root import Config
from icrl.config.options import RootOptions
from icrl.plots import style
from icrl.programs import evaluate, finetune, pipeline, train_agents, train_gpt
from icrl.runs import record as run_record
from icrl.runs.files import PROJECT, sha256

STAGES = {"train_agents": train_agents.main, "train_gpt": train_gpt.main, "evaluate": evaluate.main}
PROGRAMS = STAGES | {"pipeline": pipeline.main, "finetune": finetune.main}

# A run of 6 updates in both stages, with checkpoints amid it, lives that are longer than what is recorded of them,
# dropout (so that the generator's state counts), mixed precision, accumulation, and evaluations that fall on
# checkpoints and between them.
TINY = (
    *("name=tiny", "device=cpu", "num_threads=1", "policy.model=gpt"),
    *("finetune.num_unsolvable=0", "finetune.num_rooms=0"),
    *("env.size=3", "env.max_episode_steps=4", "tasks.num_train=5"),
    *("source.num_learners=1", "source.num_envs=2", "source.unroll_length=5", "source.hidden_size=8"),
    *("source.num_env_steps=60", "source.history_steps=50", "source.videos_per_task=0"),
    *("data.keep_every=1", "data.kept_steps=0", "data.num_development_tasks=2", "data.min_final_success=0"),
    *("model.context_len=8", "model.embed_dim=8", "model.num_layers=1", "model.num_heads=2", "model.ff_dim=16"),
    *("model.residual_dropout=0.1", "model.attention_dropout=0.1"),
    *("trainer.num_iterations=6", "trainer.mini_batch_size=4", "summaries.num_summaries=0"),
    *("summaries.summary_interval=1", "checkpoints.num_checkpoints=0", "checkpoints.checkpoint_interval=2"),
    *("evals.num_evals=0", "evals.eval_interval=3", "evals.num_eval_episodes=24", "evals.num_eval_environments=8"),
    *("evals.async_eval=false", f"source.evaluate={EVALUATED_AGENTS}"),
    *("device.amp_dtype=bfloat16", "trainer.gradient_accumulation_steps=2"),
    *("evaluation.num_episodes=3", "evaluation.num_streams=2", "evaluation.num_probe_streams=1"),
    *("evaluation.num_bootstrap=100", "evaluation.videos=false"),
    *("evaluation.checkpoint=best", "evaluation.ablations=false", "evaluation.temperatures=[]"),
    "evaluation.moved_goal=false",
)

# A run of any world and source, in any of the stages.
SMALL = (
    *("name=small", "device=cpu", "num_threads=1", "source.videos_per_task=1"),
    *("source.num_envs=2", "source.num_env_steps=240", "source.history_steps=200", "source.num_learners=2"),
    *("data.keep_every=1", "data.kept_steps=0", "data.num_development_tasks=1"),
    *("model.context_len=12", "model.embed_dim=8", "model.num_layers=1", "model.num_heads=2", "model.ff_dim=16"),
    *("trainer.num_iterations=4", "trainer.mini_batch_size=4", "evals.num_evals=1", "evals.async_eval=false"),
    *("evals.num_eval_episodes=4", "evals.num_eval_environments=2", "checkpoints.num_checkpoints=1"),
    *("evaluation.num_episodes=4", "evaluation.num_streams=2", "evaluation.num_probe_streams=1"),
    *("evaluation.num_bootstrap=100", "summaries.num_summaries=4"),
    *("finetune.trial_steps=12", "finetune.num_iterations=1", "finetune.num_streams=2", "policy.model=gpt"),
)

CURVES = ("source/", "update/", "pretraining/", "evaluation/", "train/", "in_context/", "adaptation")
CURVES += ("host/", "agent/", "matches/")


class Outcome(NamedTuple):
    """How a command ended. Code 0: it finished; 2: it refused."""

    code: int
    out: str
    err: str

    @property
    def refusal(self) -> str:
        """The message of a command that refused: one line, whatever else it showed while it worked."""
        lines = self.err.replace("\x1b[A", "").splitlines()  # without the cursor's moves between bars
        messages = [line for line in lines if line.startswith("error: ")]
        assert self.code == 2 and len(messages) == 1 and "Traceback" not in self.err, self
        return messages[0].removeprefix("error: ")


def program_of(stage: str) -> tuple[Callable[..., Any], type[RootOptions]]:
    """Function of a program of the core or an extension, and the class of its options."""
    if stage in PROGRAMS:
        return PROGRAMS[stage], Config
    module = import_module(extensions.programs()[stage])
    return module.main, getattr(module, "OPTIONS", Config)


def run(stage: str, root: Path, *options: str, preset: Sequence[str] = TINY) -> Outcome:
    """Run a stage in this process, as its command line would."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    arguments = [f"src/{stage}.py", *preset, f"root={root}", *options]
    clean = patch.object(run_record, "git_state", lambda _: {"revision": "0", "dirty": False, "diff": ""})
    with clean, patch.object(sys, "argv", arguments), redirect_stdout(out), redirect_stderr(err):
        try:
            run_program(*program_of(stage), stage, "", "all options")
        except SystemExit as end:
            code = int(end.code or 0)
    return Outcome(code, out.getvalue(), err.getvalue())


def done(stage: str, root: Path, *options: str, preset: Sequence[str] = TINY) -> str:
    """Output of a command that must succeed."""
    outcome = run(stage, root, *options, preset=preset)
    assert outcome.code == 0, (stage, outcome)
    return outcome.out


def kill_late(folder: Path, step: int) -> None:
    """Make a finished training in `folder` look as if it was killed after the checkpoint of `step`."""
    (folder / "finished.json").unlink(missing_ok=True)
    for path in folder.glob("[ls]*-[0-9]*.*"):  # last and snapshot
        if int(path.stem.rpartition("-")[2]) > step:
            path.unlink()


def refusal(stage: str, root: Path, *options: str, preset: Sequence[str] = TINY) -> str:
    """Message of a command that refuses and leaves all files as they were."""
    before = files_of(root)
    message = run(stage, root, *options, preset=preset).refusal
    assert files_of(root) == before
    return message


@contextmanager
def one_process() -> Iterator[ProcessPoolExecutor]:
    """Pool of one process. The server that starts it begins with signals blocked, as wherever else it is started first:
    it lives on, and all later processes inherit this."""
    resource_tracker.ensure_running()  # first, because this unblocks them
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGUSR2})
    try:
        pool = ProcessPoolExecutor(1, get_context("forkserver"))
        pool.submit(int).result()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    with pool:
        yield pool


def blank(figure: Figure) -> style.Frame:
    """Picture in place of a figure, a quarter as wide and high, with nothing on it but a band of noise, which makes its
    file as large as others."""
    width, height = (figure.get_size_inches() * style.DPI).astype(int) // 4
    picture = np.full((height, width, 3), 255, np.uint8)
    picture[:40] = np.random.default_rng(0).integers(256, size=picture[:40].shape)
    return picture


def still(path: Path, frames: Iterable[style.Frame], fps: float) -> None:
    """The first frame in place of a video, which `ffmpeg` would refuse if a side were odd."""
    first = next(iter(frames))
    assert fps > 0 and first.shape[0] % 2 == first.shape[1] % 2 == 0
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(first).save(path, format="png")


def flip(path: Path, position: int) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def flipped(content: bytes, at: float) -> bytes:
    place = int(at * (len(content) - 1))
    return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut": lambda content: content[: len(content) // 3],
    "almost whole": lambda content: content[:-9],
    "a bit at the start": lambda content: flipped(content, 0.02),
    "a bit amid": lambda content: flipped(content, 0.5),
    "zeros": lambda content: bytes(len(content)),
    "deep": lambda _: b"[" * 100_000,
}


class Exploit:
    """Object that creates a folder when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def run_without_privileges(stage: str, root: Path) -> Outcome:
    """Run a stage in this process, which from then on obeys permissions even if it is root's."""
    libc, header, capabilities = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, capabilities) == 0
    capabilities[0] &= ~0b110  # in effect: to override permissions of files, and to read all of them
    assert libc.capset(header, capabilities) == 0
    return run(stage, root)


def start(stage: str, root: Path, *options: str) -> subprocess.Popen[str]:
    """Start a stage in a process of its own."""
    return python("-m", f"src.{stage}", *TINY, f"root={root}", *options)


def python(*arguments: str) -> subprocess.Popen[str]:
    """Start Python in the folder of the project."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=PROJECT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> Outcome:
    out, err = process.communicate(timeout=200)
    return Outcome(process.returncode, out, err)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """The operating system lets no file grow beyond `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def files_of(root: Path) -> dict[str, tuple[str, int]]:
    """Checksum and time of the last change of every file but locks."""
    return {
        str(path.relative_to(root)): (sha256(path), path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def results_of(root: Path) -> dict[str, Any]:
    """What stages left in `root`, to be compared with another root: arrays and pictures bit for bit, checkpoints tensor
    by tensor (the newest alone, for a crash amid the deletion of an old one may leave that there), JSON without the
    root's name, and the steps of every TensorBoard curve; but not what a run notes about each of its sessions."""
    results: dict[str, Any] = {}
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        if path.name in (".lock", "run.json") or path.suffix == ".diff":
            continue
        name = path.relative_to(root)
        kind, _, step = path.name.partition("-")
        if path.name.startswith("events."):
            results[str(name.parent)] = curves_of(path.parent)
        elif step and path.suffix in (".pt", ".json"):
            results[str(name.with_name(kind + path.suffix))] = step, _content(path)  # the newest comes last
        else:
            results[str(name)] = _content(path)
    return results


def curves_of(folder: Path) -> dict[str, list[int]]:
    """The steps of each TensorBoard curve in `folder`."""
    return {tag: [step for step, _ in points] for tag, points in curves(folder).items() if tag.startswith(CURVES)}


def _content(path: Path) -> Any:
    if path.suffix == ".pt":
        return plain(torch.load(path, map_location="cpu", weights_only=True))
    if path.suffix == ".json":
        content = json.loads(path.read_text(), object_pairs_hook=_without_root)
        checksums = ("sha256", "state_sha256")  # of the root's name, of how tensors of a checkpoint share memory
        return {key: value for key, value in content.items() if key not in checksums}
    return sha256(path)


def _without_root(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Without what makes no difference: where it is, and in which process evaluations were made."""
    return {key: value for key, value in pairs if key not in ("root", "async_eval")}
