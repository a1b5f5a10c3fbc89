"""Environments in processes against environments as tensors."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from functools import partial

import gymnasium
import pytest
import torch

from src.config import load_config
from src.contracts import PipelineError, Step
from src.envs import make_env, process
from src.envs.base import State
from src.envs.process import ProcessEnv, Processes
from src.randomness import stream_seeds

NUM_STREAMS = 4
CONFIG = load_config(["env.size=4", "env.random_start=true", "env.max_episode_steps=6"]).env
HIDDEN = load_config(["env=dark_key_to_door_hidden", "env.size=3", "env.max_episode_steps=9"]).env
GAUSSIAN = load_config(["env=bandit_gaussian", "env.max_episode_steps=3"]).env
TENSORS = make_env(CONFIG)
TASKS = TENSORS.all_tasks()[:NUM_STREAMS]
SEEDS = stream_seeds(0, NUM_STREAMS)
ACTIONS = torch.randint(5, (60, NUM_STREAMS), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def env() -> Iterator[ProcessEnv]:
    processes = ProcessEnv(CONFIG)
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
    return [each.pid for each in env._envs.processes]


def test_steps_equal_the_tensors_bit_for_bit(env: ProcessEnv) -> None:
    ours, theirs = env.reset(TASKS, SEEDS), TENSORS.reset(TASKS, SEEDS)
    assert_same(ours, theirs)
    state, expected = assert_same_lives(env, ours[0], theirs[0])
    assert torch.equal(env.optimal_action(state), TENSORS.optimal_action(expected))
    assert torch.equal(env.all_tasks(), TENSORS.all_tasks())
    assert env.spec == TENSORS.spec


def test_every_stream_has_a_process_of_its_own(env: ProcessEnv) -> None:
    env.reset(TASKS, SEEDS)
    assert len({os.getpid(), *processes_of(env)}) == NUM_STREAMS + 1


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


def test_another_number_of_streams_gets_as_many_processes() -> None:
    env = ProcessEnv(CONFIG)
    try:
        for count in (1, 3):
            assert_same(env.reset(TASKS[:count], SEEDS[:count]), TENSORS.reset(TASKS[:count], SEEDS[:count]))
            assert len(processes_of(env)) == count
    finally:
        env.close()


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


def test_processes_that_do_not_start_are_an_error() -> None:
    with pytest.raises(PipelineError, match=r"environment process .*\(exit code 1\).* died"):
        Processes(partial(only_in, os.getpid()), 2)


def only_in(process: int) -> gymnasium.Env:
    if os.getpid() != process:
        raise SystemExit(1)
    return gymnasium.make("FrozenLake-v1")


def test_close_ends_the_processes_even_with_a_dead_one() -> None:
    env = ProcessEnv(CONFIG)
    env.close()  # nothing to end yet
    for victims in (0, 1):
        env.reset(TASKS[:2], SEEDS[:2])
        pids = processes_of(env)
        for pid in pids[:victims]:
            os.kill(pid, signal.SIGKILL)
        env.close()
        env.close()
        assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
