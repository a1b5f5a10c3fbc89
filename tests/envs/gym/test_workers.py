"""Environments in processes against environments as tensors."""

import errno
import multiprocessing.process
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from kin import all_gone

from icrl.config.compose import load_config
from icrl.contracts import PipelineError, Step
from icrl.envs import make_env
from icrl.envs.core import State
from icrl.envs.gym import process
from icrl.envs.gym.workers import ProcessEnv, Processes
from icrl.randomness import stream_seeds

NUM_STREAMS, NUM_WORKERS = 4, 3
CONFIG = load_config(["env.size=4", "env.random_start=true", "env.max_episode_steps=6"]).env
HIDDEN = load_config(["env=dark_key_to_door_hidden", "env.size=3", "env.max_episode_steps=9"]).env
GAUSSIAN = load_config(["env=bandit_gaussian", "env.max_episode_steps=3"]).env
TENSORS = make_env(CONFIG)
TASKS = TENSORS.all_tasks()[:NUM_STREAMS]
SEEDS = stream_seeds(0, NUM_STREAMS)
ACTIONS = torch.randint(5, (60, NUM_STREAMS), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def env() -> Iterator[ProcessEnv]:
    processes = ProcessEnv(CONFIG, NUM_WORKERS)
    yield processes
    processes.close()


def assert_same(ours: tuple[State, Step], theirs: tuple[State, Step]) -> None:
    for group, expected_group in zip(ours, theirs, strict=True):
        for field, value, expected in zip(group._fields, group, expected_group, strict=True):
            assert value.dtype == expected.dtype, field
            assert torch.equal(value, expected), field


def assert_same_lives(env: ProcessEnv, ours: State, theirs: State) -> tuple[State, State]:
    for action in ACTIONS:
        after, expected = env.step(ours, action), TENSORS.step(theirs, action)
        assert_same(after, expected)
        ours, theirs = after[0], expected[0]
    assert theirs.episode.min() > 5
    return ours, theirs


def processes_of(env: ProcessEnv) -> list[int]:
    assert isinstance(env._envs, Processes)
    return [each.pid for each in env._envs.processes if each.pid]


def test_steps_equal_the_tensors_bit_for_bit(env: ProcessEnv) -> None:
    ours, theirs = env.reset(TASKS, SEEDS), TENSORS.reset(TASKS, SEEDS)
    assert_same(ours, theirs)
    state, expected = assert_same_lives(env, ours[0], theirs[0])
    assert torch.equal(env.optimal_action(state), TENSORS.optimal_action(expected))
    assert torch.equal(env.all_tasks(), TENSORS.all_tasks())
    assert env.spec == TENSORS.spec


@pytest.mark.parametrize(("num_workers", "num_streams"), [(1, 4), (2, 3), (4, 4), (5, 2)])
def test_steps_are_the_same_whatever_the_number_of_workers(num_workers: int, num_streams: int) -> None:
    """And there are as many as asked for, but none without an environment."""
    tasks, seeds = TASKS[:num_streams], SEEDS[:num_streams]
    ours, theirs = (env := ProcessEnv(CONFIG, num_workers)).reset(tasks, seeds), TENSORS.reset(tasks, seeds)
    with closing(env):
        assert len({os.getpid(), *processes_of(env)}) == 1 + min(num_workers, num_streams)
        for action in ACTIONS[:20, :num_streams]:
            assert_same(ours, theirs)
            ours, theirs = env.step(ours[0], action), TENSORS.step(theirs[0], action)


def test_there_is_a_worker_for_each_core_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    with closing(ProcessEnv(CONFIG)) as env:
        env.reset(TASKS, SEEDS)
        assert len(processes_of(env)) == 2


def test_a_reset_starts_lives_anew(env: ProcessEnv) -> None:
    for tasks, seeds in ((TASKS, SEEDS), (TASKS.flip(0), -SEEDS)):
        ours, theirs = env.reset(tasks, seeds), TENSORS.reset(tasks, seeds)
        assert_same(ours, theirs)
        assert_same_lives(env, ours[0], theirs[0])


def test_it_goes_on_from_any_state(env: ProcessEnv) -> None:
    """As after a resume: from a state in the middle of later episodes that the processes have never been in."""
    env.reset(TASKS, SEEDS)
    state = TENSORS.reset(TASKS.flip(0), stream_seeds(5, NUM_STREAMS))[0]
    for action in ACTIONS[:20]:
        state, _ = TENSORS.step(state, action)
    assert state.episode.min() > 1 and state.timestep.max() > 0
    assert_same_lives(env, state, state)


def test_the_number_of_streams_may_change() -> None:
    with closing(ProcessEnv(CONFIG, 1)) as env:
        for count in (1, 3):
            assert_same(env.reset(TASKS[:count], SEEDS[:count]), TENSORS.reset(TASKS[:count], SEEDS[:count]))


def test_a_dead_process_is_an_error(env: ProcessEnv) -> None:
    state, _ = env.reset(TASKS, SEEDS)
    pids = processes_of(env)
    os.kill(pids[2], signal.SIGKILL)
    with pytest.raises(PipelineError, match=r"process 2 \(exit code -9\) died"):
        for action in ACTIONS:
            state, _ = env.step(state, action)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert_same_lives(env, state, state)  # with new processes


def test_a_process_that_does_not_answer_is_an_error(env: ProcessEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    state, _ = env.reset(TASKS, SEEDS)
    os.kill(processes_of(env)[1], signal.SIGSTOP)
    monkeypatch.setattr(process, "_TIMEOUT", 0.5)
    with pytest.raises(PipelineError, match="no answer in 0.5 s"):
        env.step(state, ACTIONS[0])


def test_other_worlds_too() -> None:
    """Also where an observation hides part of the place, and where rewards are chance and no whole numbers."""
    for config in HIDDEN, GAUSSIAN:
        tensors, streams = make_env(config), 2
        tasks, seeds = tensors.all_tasks()[:streams], stream_seeds(1, streams)
        theirs = tensors.reset(tasks, seeds)
        with closing(ProcessEnv(config)) as env:
            ours = env.reset(tasks, seeds)
            for number, action in enumerate(ACTIONS[:, :streams]):
                assert_same(ours, theirs)
                before = State(*theirs[0]) if number == 30 else ours[0]  # goes on from the state of another
                ours, theirs = env.step(before, action), tensors.step(theirs[0], action)
            assert theirs[0].episode.min() > 5


def refused(make_many: Any, num_workers: int = 2, num_envs: int = 2) -> str:
    """What is said where environments cannot be had, without a process left behind."""
    with pytest.raises(PipelineError) as failed:
        Processes(make_many, num_workers, num_envs)
    message = str(failed.value)
    assert "\n" not in message and "source.vectorization=tensor" in message, message
    return message


def test_processes_that_do_not_start_are_an_error() -> None:
    assert re.search(r"environment process .*\(exit code 1\).* died", refused(partial(only_in, os.getpid())))


def only_in(process: int, number: int) -> list[gymnasium.Env]:
    if os.getpid() != process:
        raise SystemExit(1)
    return [gymnasium.make("FrozenLake-v1") for _ in range(number)]


def test_environments_beyond_memory_are_an_error() -> None:
    message = refused(too_large, 2, 50)
    assert "no memory is left for the 25 environments of a process" in message and "source.num_envs" in message


def too_large(number: int) -> Any:
    raise MemoryError


def of_processes(errno_of: int) -> Callable[[Any], None]:
    def start(process: Any) -> None:
        raise OSError(errno_of, os.strerror(errno_of))

    return start


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.ENOMEM])
def test_processes_that_the_system_refuses_are_an_error(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", of_processes(code))
    message = refused(too_large)
    assert f"refuses 2 environment processes ([Errno {code}] {os.strerror(code)})" in message
    assert "source.num_workers" in message and "ulimit -u" in message


def test_files_that_the_system_refuses_are_an_error() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(free := os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 8, hard))
    try:
        message = refused(slow_ones, 9, 9)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "refuses 9 environment processes ([Errno 24] Too many open files)" in message and "ulimit -n" in message


class Slow(gymnasium.Env[int, int]):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        time.sleep(0.25)
        return 7, {}


def slow_ones(number: int) -> list[Slow]:
    return [Slow() for _ in range(number)]


def test_many_slow_environments_have_a_limit_each(monkeypatch: pytest.MonkeyPatch) -> None:
    envs = Processes(slow_ones, 1, 8)
    monkeypatch.setattr(process, "_TIMEOUT", 1.0)
    try:
        assert envs.reset(np.zeros((8, 1), np.int64), np.zeros(8, np.int64)).tolist() == [7] * 8
    finally:
        envs.close()


def test_nothing_is_left_when_the_training_process_is_killed() -> None:
    """Even where an environment is stuck."""
    program = """
import sys
sys.path[:0] = ["tests", "tests/envs"]
from test_process import *
if __name__ == "__main__":
    envs = Processes(stuck_ones, 2, 4)
    print(*(each.pid for each in envs.processes), flush=True)
    envs.reset(np.zeros((4, 1), np.int64), np.zeros(4, np.int64))
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        pids = [int(pid) for pid in trainer.stdout.readline().split()]
        assert [trainer.stdout.readline() for _ in pids] == ["stuck\n"] * 2
        trainer.kill()
    assert all_gone(pids)


class Stuck(gymnasium.Env[int, int]):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        os.write(1, b"stuck\n")
        time.sleep(1000)
        return 0, {}


def stuck_ones(number: int) -> list[Stuck]:
    return [Stuck() for _ in range(number)]


def test_close_ends_the_processes_even_with_a_dead_one() -> None:
    env = ProcessEnv(CONFIG, 2)
    env.close()  # nothing to end yet
    for victims in (0, 1):
        env.reset(TASKS[:2], SEEDS[:2])
        pids = processes_of(env)
        for pid in pids[:victims]:
            os.kill(pid, signal.SIGKILL)
        env.close()
        env.close()
        assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
