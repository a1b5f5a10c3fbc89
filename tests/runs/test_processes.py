"""Jobs in processes of their own: results, order, threads, exceptions and deaths."""

import io
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from kin import all_gone
from torch import Tensor

from icrl.contracts import PipelineError
from icrl.runs.processes import Progress, in_parallel


def look(number: int, tensor: Tensor) -> tuple[int, Tensor, int, int]:
    return number, tensor + number, os.getpid(), torch.get_num_threads()


def fail(number: int) -> None:
    raise ValueError(f"job {number}")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_processes_give_what_one_process_gives() -> None:
    jobs = [(f"job {number}", partial(look, number, torch.arange(3))) for number in range(6)]
    here, there = in_parallel(jobs, 1, "here"), in_parallel(jobs, 2, "there")
    assert [name for name, _ in here] == [name for name, _ in there] == [name for name, _ in jobs]
    for number, ((_, one), (_, other)) in enumerate(zip(here, there, strict=True)):
        assert one[0] == other[0] == number and torch.equal(one[1], other[1])
        assert one[2] == os.getpid() != other[2] and other[3] == 1
    assert in_parallel([], 2, "nothing") == []


@pytest.mark.parametrize("terminal", [True, False])
def test_bars_are_drawn_on_terminals_alone(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines go on, and bars count, wherever."""
    out, err = io.StringIO(), io.StringIO()
    err.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with Progress("first", 20, 0, "it") as progress:
        for _ in range(20):
            progress.advance()
            progress.tell("told")
    assert bool(err.getvalue()) == terminal
    assert len(re.findall(r"first +\d+%  told  .* it/s", out.getvalue())) == 10


@pytest.mark.parametrize("width", [1, 2])
def test_an_exception_is_that_of_the_job(width: int) -> None:
    with pytest.raises(ValueError, match="job 1"):
        in_parallel([("first", partial(look, 0, torch.ones(1))), ("second", partial(fail, 1))], width, "jobs")


def test_a_dead_process_ends_all() -> None:
    others = [(str(number), partial(look, number, torch.ones(1))) for number in range(4)]
    with pytest.raises(PipelineError, match="died. Run the same command again, or with num_threads=1"):
        in_parallel([("last", die), *others], 2, "jobs")


HELD = """
import ctypes, multiprocessing, os, time
from icrl.runs.processes import end_with_parent

def hold():
    end_with_parent()
    os.write(1, b"%d\\n" % os.getpid())
    ctypes.PyDLL(None).sleep(1000)

if __name__ == "__main__":
    multiprocessing.get_context("forkserver").Process(target=hold).start()
    time.sleep(1000)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_that_holds_the_interpreter_ends_with_the_one_that_asked_for_it(tmp_path: Path) -> None:
    (program := tmp_path / "held.py").write_text(HELD)
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True) as asker:
        assert asker.stdout
        pid = int(asker.stdout.readline())
        asker.kill()
    assert all_gone([pid])


TRUNK = """
from icrl.nn.transformer import Attention, trunk

@trunk("mine")
class Mine(Attention): ...
"""
BUILD = """
from functools import partial
from icrl.app.compose import load_config
from icrl.envs import make_env
from icrl.nn.gpt import GPT
from icrl.runs.processes import Worker, in_parallel

if __name__ == "__main__":
    config = load_config(["module=my_trunk.py", "model.trunk=mine"])
    job = partial(GPT, config.model, make_env(config.env).spec)
    worker = Worker(partial(GPT, config.model), idle=False)
    worker.give(make_env(config.env).spec)
    built = [worker.answer(60), *(model for _, model in in_parallel([("one", job)], 2, "build"))]
    worker.end()
    print([type(model.transformer.blocks[0].attention).__name__ for model in built])
"""


def test_processes_know_what_files_of_the_user_register(tmp_path: Path) -> None:
    """In a program of its own, because processes of tests have imported everything."""
    (tmp_path / "my_trunk.py").write_text(TRUNK)
    (tmp_path / "build.py").write_text(BUILD)
    ended = subprocess.run([sys.executable, "build.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines()[-1:] == ["['Mine', 'Mine']"], ended
