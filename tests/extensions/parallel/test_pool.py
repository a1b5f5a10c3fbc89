"""Jobs in processes of their own: results, order, threads, exceptions and deaths."""

import os
import signal
import subprocess
import sys
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from torch import Tensor

from icrl.contracts import PipelineError
from icrl.extensions.parallel.pool import ProcessPool
from icrl.runs.processes import Pool, in_parallel


@pytest.fixture(autouse=True, params=[Pool, ProcessPool], ids=["here", "there"])
def pool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Pool]:
    monkeypatch.setattr("icrl.runs.processes.POOLS", [request.param()])
    return request.param


def look(number: int, tensor: Tensor) -> tuple[int, Tensor, int, int]:
    return number, tensor + number, os.getpid(), torch.get_num_threads()


def fail(number: int) -> None:
    raise ValueError(f"job {number}")


def start_another() -> int:
    context = get_context("forkserver")
    process = context.Process(target=os.getpid)
    process.start()
    process.join()
    return process.exitcode


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_results_are_in_the_order_of_the_jobs(pool: type[Pool]) -> None:
    jobs = [(f"job {number}", partial(look, number, torch.arange(3))) for number in range(6)]
    found = in_parallel(jobs, 2, "jobs")
    assert [name for name, _ in found] == [name for name, _ in jobs] and in_parallel([], 2, "nothing") == []
    for number, (_, (given, tensor, process, threads)) in enumerate(found):
        assert given == number and torch.equal(tensor, torch.arange(3) + number)
        assert (process == os.getpid()) == (pool is Pool) and (pool is Pool or threads == 1)


def test_an_exception_is_that_of_the_job() -> None:
    with pytest.raises(ValueError, match="job 1"):
        in_parallel([("first", partial(look, 0, torch.ones(1))), ("second", partial(fail, 1))], 2, "jobs")


def test_one_job_runs_beside_other_work(pool: type[Pool]) -> None:
    with pool().begun(partial(look, 3, torch.ones(1)), "looking") as result:
        assert (result()[2] == os.getpid()) == (pool is Pool)
    with pool().begun(start_another, "starting another process, as environments have them") as result:
        assert result() == 0


def test_a_dead_process_or_a_failed_one_is_named(pool: type[Pool]) -> None:
    if pool is Pool:
        pytest.skip("it would be this process")
    others = [(str(number), partial(look, number, torch.ones(1))) for number in range(4)]
    with pytest.raises(PipelineError, match="died. Run the same command again, or with num_threads=1"):
        in_parallel([("last", die), *others], 2, "jobs")
    for job, said in ((die, "looking died; run the same command"), (partial(fail, 7), "looking failed; .*job 7")):
        with pytest.raises(PipelineError, match=said), pool().begun(job, "looking") as result:
            result()


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
from icrl.extensions.parallel.worker import Worker
from icrl.runs.processes import in_parallel

if __name__ == "__main__":
    config = load_config(["module=my_trunk.py", "model.trunk=mine"])
    job = partial(GPT, config.model, make_env(config.env).spec)
    worker = Worker(partial(GPT, config.model), idle=False)
    worker.give(make_env(config.env).spec)
    built = [worker.answer(60), *(model for _, model in in_parallel([("one", job)], 2, "build"))]
    worker.end()
    print([type(model.transformer.blocks[0].attention).__name__ for model in built])
"""


def test_processes_know_what_files_of_the_user_register(pool: type[Pool], tmp_path: Path) -> None:
    """In a program of its own, because processes of tests have imported everything."""
    if pool is Pool:
        pytest.skip("it is this process")
    (tmp_path / "my_trunk.py").write_text(TRUNK)
    (tmp_path / "build.py").write_text(BUILD)
    ended = subprocess.run([sys.executable, "build.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines()[-1:] == ["['Mine', 'Mine']"], ended
