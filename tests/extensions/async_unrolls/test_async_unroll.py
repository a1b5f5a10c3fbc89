"""Unrolls from a process of its own against the same played here, by the learners as they were."""

import copy
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
import torch
from installed import needs
from kin import all_gone, family
from probes import CPU, changed, falling
from stage_one import joined, live
from toy import assert_same

from icrl import extensions
from icrl.app.compose import load_config
from icrl.contracts import PipelineError
from icrl.envs import make_env
from icrl.extensions.async_unrolls.worker import AsyncUnrollWorker
from icrl.randomness import mix
from icrl.runs.files import PROJECT
from icrl.sources import source_class
from icrl.sources.collect import UnrollWorker, collect, make_experience, make_learners, make_unroll_worker, mini_batches
from icrl.sources.options import clock_of

if "value_sources" not in extensions.NAMES:
    pytest.skip("the extension value_sources is not installed", allow_module_level=True)
QLearning = source_class("q_learning")
TOTAL = 14  # iterations
SIZES = ("env.size=4", "env.max_episode_steps=9", "source.num_learners=1", "source.num_envs=2")
CONFIGS: Any = {name: load_config([f"source={name}", *SIZES]) for name in ("q_learning", "a3c")}
CONFIG = CONFIGS["q_learning"]
ENV = make_env(CONFIG.env)
TASKS = ENV.all_tasks()[:2]
OPTIONS = {"num_iterations": TOTAL, "num_env_steps": 0, "unroll_length": 1.5, "async_unroll": True}
OPTIONS |= {"initial_collect_steps": 4, "mini_batch_size": 1}
FAST = {
    "q_learning": {"epsilon": falling(0.2, 0.0)},
    "a3c": {"hidden_size": 8, "learning_rate": falling(0.5, 0.1), "num_updates_per_train_iter": 2},
}


@pytest.fixture(autouse=True)
def optimistic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables begin above every return, so that every update changes the best action."""
    init = QLearning.__init__

    def raised(self: Any, *given: Any) -> None:
        init(self, *given)
        self.table += 1.0

    monkeypatch.setattr(QLearning, "__init__", raised)


def config_of(name: str = "q_learning", **changes: Any) -> Any:
    """Two learners with two environments each, in unrolls of 1.5 steps, that learn fast and depend on the clock."""
    return changed(CONFIGS[name], source=changed(CONFIGS[name].source, **OPTIONS | FAST[name] | changes))


def in_a_thread(config: Any, _: Any, learner: Any, streams: Any, noise: Any, first: int) -> AsyncUnrollWorker:
    return AsyncUnrollWorker(config, learner, streams, noise, first, in_thread=True)


def worker_and_loop(config: Any, make_worker: Any = in_a_thread) -> tuple[Any, Any]:
    """Worker, and the loop that it plays for."""
    learner, streams, noise = make_learners(config, ENV, TASKS, CPU)
    worker = make_worker(config, ENV, learner, streams, noise, 0)
    return worker, collect(learner, worker, make_experience(config, ENV.spec, TASKS, CPU))


def written_out(config: Any) -> tuple[list[Any], dict[str, Any]]:
    """In this process: unroll i with the learners as they were after max(0, i - q) iterations."""
    source = config.source
    (learner, streams, noise), (behind, *_) = (make_learners(config, ENV, TASKS, CPU) for _ in range(2))
    worker = UnrollWorker(source, ENV, behind, streams, noise)
    learned, played = [copy.deepcopy(learner.state_dict())], []
    for i in range(TOTAL):
        behind.load_state_dict(learned[max(0, i - source.unroll_queue_size)])
        behind.set_clock(clock_of(source, i))
        transitions, now = worker.play()
        metrics, clock, targets = {}, clock_of(source, i), behind.targets(transitions)
        # After the first unroll there are 2 env steps of each learner, after the second 6.
        if i >= 1 + source.pretraining:
            for number, part in enumerate(mini_batches(source, transitions, targets, 2, mix(torch.tensor(0), i + 1))):
                learner.set_clock(clock._replace(updates=clock.updates + number))
                metrics = learner.update(part).metrics
        learner.set_clock(clock_of(source, i + 1))
        learned.append(copy.deepcopy(learner.state_dict()))
        played.append((transitions, metrics, now))
    return played, learner.state_dict()


def run(config: Any, stop: int = TOTAL, saved: Any = None) -> tuple[list[Any], dict[str, Any]]:
    return live(config, ENV, TASKS, stop, saved, in_a_thread)[1:]


AFTER = "rl_train_after_update_steps"
PACES = [(20, "q_learning", {}), (2, "q_learning", {AFTER: 5}), (4, "a3c", {"mini_batch_size": 0})]


@pytest.mark.parametrize(("queue", "name", "options"), PACES)
def test_it_equals_the_rule_written_out_and_goes_on_where_it_stopped(queue: int, name: str, options: Any) -> None:
    """Transitions, learners and states of whole runs, and of runs that were stopped at each sixth iteration; also
    if the first iterations play nothing. A3C learns from the probabilities of the policy that played."""
    config = config_of(name, unroll_queue_size=queue, **options)
    expected, learned = written_out(config)
    in_parallel, _ = written_out(config_of(name, unroll_queue_size=1, **options))
    assert not torch.equal(*(joined(unroll for unroll, _, _ in played).action for played in (expected, in_parallel)))
    whole, state = run(config)
    assert_same(whole, expected)
    assert_same(state["learner"], learned)
    for stop in range(1, TOTAL, 6):
        early, saved = run(config, stop)
        assert_same(early, expected[:stop])
        late, end = run(config, TOTAL, saved)
        assert_same(late, expected[stop:])
        assert_same(end, state)


class Refused(ThreadPoolExecutor):
    """Pool whose process the system refuses."""

    def __init__(self, *_: Any) -> None:
        super().__init__(1)

    def submit(self, *_: Any) -> Any:
        raise OSError("no more processes")


def test_a_process_that_is_refused_is_the_error_that_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icrl.extensions.async_unrolls.worker.ProcessPoolExecutor", Refused)
    worker, loop = worker_and_loop(config_of(), lambda config, _, *others: AsyncUnrollWorker(config, *others))
    with pytest.raises(OSError, match="no more processes"), closing(worker):
        next(loop)


def test_it_is_never_further_ahead_than_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it has time to; and no state is kept that no unroll will need."""
    played: list[int] = []
    local_play = UnrollWorker.play
    monkeypatch.setattr(UnrollWorker, "play", lambda self: (played.append(1), local_play(self))[1])
    worker, loop = worker_and_loop(config_of(unroll_queue_size=3))
    with closing(worker):
        for iteration, _ in enumerate(loop, 1):
            time.sleep(0.05)
            assert len(played) == min(iteration + 3 + 1, TOTAL)  # and the one that is played meanwhile
            assert list(worker.state_dict()["versions"]) == list(range(max(0, iteration - 3), iteration + 1))


@pytest.mark.parametrize("error", [PipelineError("door 3 is shut"), ValueError("odd")])
def test_errors_come_after_the_unrolls_before_them(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    local_play, turn = UnrollWorker.play, itertools.count()

    def broken(self: UnrollWorker) -> Any:
        if next(turn) == 4:
            raise error
        return local_play(self)

    monkeypatch.setattr(UnrollWorker, "play", broken)
    worker, loop = worker_and_loop(config_of())
    with closing(worker):
        assert len(list(itertools.islice(loop, 4))) == 4
        with pytest.raises(type(error), match=str(error)):
            next(loop)


@pytest.mark.parametrize("killed", [False, True])
def test_a_process_of_its_own(killed: bool) -> None:
    """Equal to the rule written out. Signals to the whole group do not reach it. Its death is an error at once. No
    process is left, whether it is killed or closed."""
    expected, _ = written_out(config_of())
    worker, loop = worker_and_loop(config_of(), make_unroll_worker)
    with closing(worker):
        assert_same(next(loop), expected[0])
        started = [worker.processes[0].pid, *family(worker.processes[0].pid)]
        if killed:
            for number, each in itertools.product((signal.SIGINT, signal.SIGTERM, signal.SIGUSR2), started):
                os.kill(each, number)
            assert_same(list(itertools.islice(loop, 8)), expected[1:9])
            while not all(request.done() for request in worker._requests):  # so that no request is left to fail
                time.sleep(0.01)
            os.kill(started[0], signal.SIGKILL)
            time.sleep(0.5)  # until the pool knows
        since = time.monotonic()
        if killed:
            with pytest.raises(PipelineError, match=r"died \(exit code -9\)"):
                list(loop)
            worker.parameters_changed()  # does not raise, nor wait
    assert time.monotonic() - since < 5 and all_gone(started)
    assert not multiprocessing.active_children()


@needs("from_gymnasium")
@pytest.mark.long
def test_no_process_is_left_when_the_trainer_is_killed() -> None:
    """Even if an environment is stuck, in a worker of that process."""
    program = """
import sys, time
sys.path[:0] = ["tests/extensions/async_unrolls"]
from test_async_unroll import *
from toy_env import toy
if __name__ == "__main__":
    config = changed(config_of(), env=toy(fault="hang", slip=0, size=30).model_copy(update={"num_workers": 2}))
    env = make_env(config.env)
    worker = make_unroll_worker(config, env, *make_learners(config, env, env.all_tasks(), CPU), 0)
    worker.play()
    time.sleep(100)
"""
    with subprocess.Popen([sys.executable, "-c", program], cwd=PROJECT, stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout and trainer.stdout.readline() == "stuck\n"
        started = family(trainer.pid)
        trainer.kill()
    assert len(started) >= 1 + 1 + 2 and all_gone(started)
