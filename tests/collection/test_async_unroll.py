"""Unrolls of a process of its own against the same played here, by the learners as they were."""

import copy
import io
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kin import all_gone, family
from toy import assert_same

from icrl.collection import async_unroll
from icrl.collection.async_unroll import AsyncUnrollWorker, load_policy, version_of
from icrl.collection.collect import LocalUnrollWorker, collect, make_learners
from icrl.collection.experience import Experience, mini_batches
from icrl.collection.pace import clock_of
from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.config.paths import PROJECT
from icrl.config.root import Config
from icrl.contracts import PipelineError, Rollout, Step
from icrl.envs import make_env
from icrl.envs.core import State
from icrl.envs.rollout import Streams

CPU = torch.device("cpu")
TOTAL = 20  # iterations
SIZES = ("env.size=4", "env.max_episode_steps=9", "source.num_learners=1", "source.num_envs=2")
CONFIG = load_config(["source=q_learning", *SIZES])
Played = list[tuple[Rollout, dict[str, torch.Tensor], Streams[State, tuple[()]]]]


def config_of(**changes: Any) -> Config:
    """Two learners with two environments each, in unrolls of 1.5 steps, that learn fast and depend on the clock."""
    options = {
        "num_iterations": TOTAL,
        "num_env_steps": 0,
        "unroll_length": 1.5,
        "async_unroll": True,
        "initial_collect_steps": 4,
        "mini_batch_size": 1,
        "initial_value": 1.0,  # every update changes what is best
        "epsilon": {"kind": "linear", "progress": "percent", "points": [[0, 0.2], [1, 0]]},
    }
    return replace(CONFIG, source=replace(CONFIG.source, **options | changes))


def experience_of(config: Config) -> Experience:
    env = make_env(config.env)
    return Experience(config, env.spec, env.all_tasks()[:2], CPU)


def written_out(config: Config) -> tuple[Played, dict[str, Any]]:
    """In this process: unroll i with the learners as they were after p * floor(max(0, i - q) / p) iterations."""
    source, env = config.source, make_env(config.env)
    learner, streams, noise = make_learners(config, env, env.all_tasks()[:2], CPU)
    behind, _, _ = make_learners(config, env, env.all_tasks()[:2], CPU)
    player = LocalUnrollWorker(source, env, behind, streams, noise)
    learned, played = [copy.deepcopy(learner.state_dict())], []
    q, p = source.unroll_queue_size, source.unroll_parameter_update_period
    for i in range(TOTAL):
        behind.load_state_dict(learned[p * (max(0, i - q) // p)])
        behind.set_clock(clock_of(source, i))
        transitions, now = player.play()
        metrics = {}
        clock = clock_of(source, i)
        # After the first unroll there are 2 env steps of each learner, after the second 6.
        if i >= 1 + config.source.rl_train_after_update_steps:
            for number, part in enumerate(mini_batches(source, transitions, {}, 2, i + 1, 0)):
                learner.set_clock(clock._replace(updates=clock.updates + number))
                metrics = learner.update(part).metrics
        learner.set_clock(clock_of(source, i + 1))
        learned.append(copy.deepcopy(learner.state_dict()))
        played.append((transitions, metrics, now))
    return played, learner.state_dict()


def run(config: Config, stop: int = TOTAL, saved: dict[str, Any] | None = None) -> tuple[Played, dict[str, Any]]:
    """Iterations up to `stop`, from `saved`, as it comes through a file."""
    env = make_env(config.env)
    learner, streams, noise = make_learners(config, env, env.all_tasks()[:2], CPU)
    first = 0
    if saved:
        file = io.BytesIO()
        torch.save(saved, file)
        file.seek(0)
        saved = torch.load(file, weights_only=True)
        first = saved["iteration"]
        learner.load_state_dict(saved["learner"])
        streams = Streams(State(**saved["state"]), Step(**saved["step"]), streams.carry)
    with closing(load_policy(config, env, learner, streams, noise, first)) as player:
        if saved:
            player.load_state_dict(saved["player"])
        played = list(itertools.islice(collect(learner, player, experience_of(config), first), stop - first))
        now = played[-1][2]
        state = {
            "iteration": stop,
            "learner": copy.deepcopy(learner.state_dict()),
            "state": now.state._asdict(),
            "step": now.step._asdict(),
            "player": player.state_dict(),
        }
    return played, state


class ThreadProcess:
    """What looks like a process and is a thread of this one, for it starts at once."""

    exitcode = 0

    def __init__(self, target: Any, args: tuple[Any, ...]) -> None:
        theirs, *others = args
        self._thread = threading.Thread(target=target, args=(Connection(os.dup(theirs.fileno())), *others), daemon=True)
        self.start, self.join = self._thread.start, self._thread.join

    def kill(self) -> None: ...


@pytest.fixture
def threaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The worker in a thread."""
    before = torch.get_num_threads()
    context = SimpleNamespace(Pipe=multiprocessing.Pipe, Process=ThreadProcess)
    monkeypatch.setattr(async_unroll, "get_context", lambda _: context)
    monkeypatch.setattr(async_unroll, "active_children", list)
    monkeypatch.setattr(async_unroll, "end_with_parent", lambda _: None)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threaded")
@pytest.mark.parametrize(
    ("queue", "period", "before"), [(1, 1, 0), (2, 1, 0), (1, 3, 0), (3, 2, 0), (4, 5, 0), (20, 3, 0), (2, 1, 5)]
)
def test_it_equals_the_rule_written_out_and_goes_on_where_it_stopped(queue: int, period: int, before: int) -> None:
    """Transitions, learners and states of whole runs, and of runs that were stopped at each third iteration; also
    where the first iterations play nothing."""
    options = {"unroll_queue_size": queue, "unroll_parameter_update_period": period}
    config = config_of(**options, rl_train_after_update_steps=before)
    expected, learned = written_out(config)
    whole, state = run(config)
    assert_same(whole, expected)
    assert_same(state["learner"], learned)
    for stop in range(1, TOTAL, 3):
        early, saved = run(config, stop)
        assert_same(early, expected[:stop])
        late, end = run(config, TOTAL, saved)
        assert_same(late, expected[stop:])
        assert_same(end, state)


def test_being_behind_changes_what_is_played() -> None:
    """Or else the test above would show nothing."""
    lives = [
        torch.cat([transitions.action for transitions, _, _ in written_out(config)[0]])
        for config in (
            config_of(unroll_queue_size=queue, unroll_parameter_update_period=period)
            for queue, period in ((1, 1), (2, 1), (1, 3), (20, 3))
        )
    ]
    for one, other in itertools.combinations(lives, 2):
        assert not torch.equal(one, other)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 60))
def test_the_rule(queue: int, period: int, unroll: int) -> None:
    """A multiple of p, at least q behind, by less than p more; the untrained learners before that."""
    source = config_of(unroll_queue_size=queue, unroll_parameter_update_period=period).source
    version = version_of(source, unroll)
    assert version % period == 0
    assert version == 0 if unroll < queue else queue <= unroll - version < queue + period


@pytest.mark.usefixtures("threaded")
def test_the_player_is_never_further_ahead_than_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it has time to; and no version is kept that no unroll will need."""
    played: list[int] = []
    local_play = LocalUnrollWorker.play

    def counted(self: LocalUnrollWorker[tuple[()]]) -> Any:
        played.append(1)
        return local_play(self)

    monkeypatch.setattr(LocalUnrollWorker, "play", counted)
    config = config_of(unroll_queue_size=3, unroll_parameter_update_period=2)
    env = make_env(config.env)
    learner, streams, noise = make_learners(config, env, env.all_tasks()[:2], CPU)
    with closing(load_policy(config, env, learner, streams, noise, 0)) as player:
        for iteration, _ in enumerate(collect(learner, player, experience_of(config)), 1):
            time.sleep(0.05)
            assert len(played) == min(iteration + 3 + 1, TOTAL)  # and the one that is played meanwhile
            assert (
                list(player.state_dict()["versions"])
                == list(range((iteration - 3) // 2 * 2, iteration + 1, 2))[-min(iteration // 2 + 1, 3) :]
            )


@pytest.mark.usefixtures("threaded")
@pytest.mark.parametrize(
    ("error", "expected", "said"),
    [
        (PipelineError("door 3 is shut"), PipelineError, "^door 3 is shut$"),
        (ValueError("odd"), RuntimeError, "in broken"),
    ],
)
def test_errors_come_after_what_was_played_before(
    error: Exception, expected: type[Exception], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are, or with their traceback."""
    local_play = LocalUnrollWorker.play
    turn = itertools.count()

    def broken(self: LocalUnrollWorker[tuple[()]]) -> Any:
        if next(turn) == 4:
            raise error
        return local_play(self)

    monkeypatch.setattr(LocalUnrollWorker, "play", broken)
    config = config_of()
    env = make_env(config.env)
    learner, streams, noise = make_learners(config, env, env.all_tasks()[:2], CPU)
    with closing(load_policy(config, env, learner, streams, noise, 0)) as player:
        loop = collect(learner, player, experience_of(config))
        assert len(list(itertools.islice(loop, 4))) == 4
        with pytest.raises(expected, match=said):
            next(loop)


@pytest.mark.usefixtures("threaded")
def test_env_steps_are_spaced_in_time() -> None:
    """30 steps of each environment; the wait ends when the player is closed."""
    started = time.monotonic()
    run(config_of(unroll_step_interval=0.01))
    assert time.monotonic() - started >= 29 * 0.01
    config = config_of(unroll_step_interval=60.0)
    env = make_env(config.env)
    learner, streams, noise = make_learners(config, env, env.all_tasks()[:2], CPU)
    player = load_policy(config, env, learner, streams, noise, 0)
    player.play()  # of one step, before which there is nothing to wait for
    started = time.monotonic()
    player.close()
    player.close()
    assert time.monotonic() - started < 5


def test_without_it_the_learner_itself_plays() -> None:
    config = config_of(async_unroll=False, mini_batch_size=0)
    env = make_env(config.env)
    learner, streams, noise = make_learners(config, env, env.all_tasks()[:2], CPU)
    player = load_policy(config, env, learner, streams, noise, 0)
    assert isinstance(player, LocalUnrollWorker)
    assert player.state_dict() == {}


def test_a_process_with_environments_in_processes() -> None:
    """Equal to the rule written out; signals to the whole group do not reach it; nothing is left when it is closed."""
    config = config_of(vectorization="process", num_workers=2)
    expected, _ = written_out(config_of())
    env = make_env(config.env)
    learner, streams, noise = make_learners(config, env, env.all_tasks()[:2], CPU)
    with closing(load_policy(config, env, learner, streams, noise, 0)) as player:
        assert isinstance(player, AsyncUnrollWorker)
        for iteration, played in enumerate(collect(learner, player, experience_of(config))):
            assert_same(played, expected[iteration])
            if iteration == 4:
                assert player._worker is not None
                worker = player._worker._process.pid
                assert worker is not None
                started = [worker, *family(worker)]
                assert len(started) >= 1 + 1 + 2  # a fork server and its workers
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
                    for pid in started:
                        os.kill(pid, number)
    assert all_gone(started)


def test_a_process_that_dies_is_an_error_at_once() -> None:
    config = config_of(vectorization="process", num_workers=2)
    env = make_env(config.env)
    learner, streams, noise = make_learners(config, env, env.all_tasks()[:2], CPU)
    with closing(load_policy(config, env, learner, streams, noise, 0)) as player:
        loop = collect(learner, player, experience_of(config))
        next(loop)
        assert isinstance(player, AsyncUnrollWorker) and player._worker is not None
        worker = player._worker._process.pid
        assert worker is not None
        started = family(worker)
        os.kill(worker, signal.SIGKILL)
        since = time.monotonic()
        with pytest.raises(PipelineError, match=r"died \(exit code -9\)"):
            list(loop)
        assert time.monotonic() - since < 5
        player.learned()  # does not raise, nor wait
    assert all_gone(started)


def test_nothing_is_left_when_the_trainer_is_killed() -> None:
    """Even where an environment is stuck."""
    program = """
import sys, time
sys.path[:0] = ["tests", "tests/training", "tests/envs"]
from test_async_unroll import *
from test_gymnasium_env import toy
if __name__ == "__main__":
    config = config_of(vectorization="process", num_workers=2)
    config = replace(config, env=toy(fault="hang", slip=0, size=30))
    env = make_env(config.env)
    learner, streams, noise = make_learners(config, env, env.all_tasks(), CPU)
    player = load_policy(config, env, learner, streams, noise, 0)
    player.play()
    time.sleep(100)
"""
    with subprocess.Popen([sys.executable, "-c", program], cwd=PROJECT, stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == "stuck\n"
        started = family(trainer.pid)
        trainer.kill()
    assert len(started) >= 1 + 1 + 2
    assert all_gone(started)
