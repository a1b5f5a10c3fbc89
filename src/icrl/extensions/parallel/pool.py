"""Pool of processes with one thread each, because two threads of one process would wait for each other."""

import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager, redirect_stderr
from functools import partial
from multiprocessing import active_children, get_context
from threading import RLock
from typing import Any

import torch

from icrl.config.modules import extra_module
from icrl.contracts import PipelineError
from icrl.extensions.parallel.children import end_with_parent, killed_at_the_end, without_signals
from icrl.extensions.parallel.worker import START_METHOD, Worker, load_again, loaded
from icrl.runs.processes import Job, Pool, Progress, Result, Tell, say

_TICK = 1.0  # seconds after which a bar is drawn again
_POLL_SECONDS = 60.0


class ProcessPool(Pool):
    """Pool of processes. Raises `PipelineError` if one of them dies."""

    def results(
        self, jobs: Sequence[Job[Result]], width: int, progress: Progress, tell: Tell[Result]
    ) -> list[tuple[str, Result]]:
        if width <= 1:
            return super().results(jobs, width, progress, tell)
        results, names = dict[int, Result](), [name for name, _ in jobs]
        before = active_children()
        with without_signals():
            pool = ProcessPoolExecutor(width, get_context(START_METHOD), _alone, (loaded(),))
            # Pickled here, tensors travel by value and not in shared memory, which would need its sender alive.
            futures = {pool.submit(_done, pickle.dumps(job)): number for number, (_, job) in enumerate(jobs)}
        kill = killed_at_the_end([process for process in active_children() if process not in before])
        try:
            while len(results) < len(jobs):
                done, _ = wait_for(
                    futures, _TICK, FIRST_COMPLETED
                )  # not in order: the bar does not wait for a long one
                for future in done:
                    number = futures.pop(future)
                    results[number] = pickle.loads(future.result())
                    progress.advance()
                    progress.tell(tell(names[number], results[number]))
                progress.refresh()  # the time that has passed
            return [(name, results[number]) for number, name in enumerate(names)]
        except BrokenExecutor as error:
            raise PipelineError("a worker process died. Run the same command again, or with num_threads=1") from error
        finally:
            kill()
            pool.shutdown(cancel_futures=True)

    @contextmanager
    def begun(self, job: Callable[[], Result], what: str) -> Iterator[Callable[[], Result]]:
        """Its result must not be None. If it fails there, the function raises a `PipelineError`."""
        helper = Worker(_call, idle=False)
        try:
            helper.give(job)
            yield partial(_result_of, helper, what)
        finally:
            helper.end()


def _call(job: Callable[[], Result]) -> Result:
    """Result of a job, without a progress bar, because another process shows its own."""
    extra_module("tqdm", "a progress bar").tqdm.set_lock(RLock())  # one of processes would outlive this one
    with redirect_stderr(io.StringIO()):
        return job()


def _result_of(helper: Worker, what: str) -> Any:
    try:
        if (answer := helper.answer(0.0)) is None:
            say(f"waiting for the other process, which is {what}")
        while answer is None:
            answer = helper.answer(_POLL_SECONDS)
    except (EOFError, OSError) as error:
        raise PipelineError(f"the process that was {what} died; run the same command to repeat it") from error
    if isinstance(answer, str):
        why = answer.strip().splitlines()[-1]
        raise PipelineError(f"{what} failed; run the same command to repeat it. {why}")
    return answer


def _alone(modules: list[str]) -> None:
    end_with_parent()
    load_again(modules)
    torch.set_num_threads(1)


def _done(job: bytes) -> bytes:
    return pickle.dumps(pickle.loads(job)())
