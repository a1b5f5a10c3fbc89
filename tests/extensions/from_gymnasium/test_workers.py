"""Environments in worker processes against the same environments in this process."""

import os
import resource
import signal
from contextlib import closing
from typing import Any

import pytest
import torch
from toy_env import die, lake, played, shaped, toy, use_too_much_memory

from icrl.contracts import PipelineError, Step
from icrl.envs import make_env
from icrl.extensions.from_gymnasium.gymnasium_env import GymnasiumEnv
from icrl.randomness import stream_seeds

NUM_STREAMS = 4
LAKE = lake(max_episode_steps=6)
WORLDS = {"lake": LAKE, "toy": toy(), "box": shaped(), "image": shaped(obs="image", action="multi")}
HERE = make_env(LAKE)
TASKS, SEEDS = HERE.all_tasks()[[0, 1, 2, 2]], stream_seeds(0, NUM_STREAMS)
ACTIONS = torch.randint(4, (60, NUM_STREAMS), generator=torch.Generator().manual_seed(0))


def assert_same(ours: tuple[Any, Step], theirs: tuple[Any, Step]) -> None:
    for group, expected_group in zip(ours, theirs, strict=True):
        for field, value, expected in zip(group._fields, group, expected_group, strict=True):
            assert value.dtype == expected.dtype and torch.allclose(value, expected, 0, 0, equal_nan=True), field


def pids_of(env: GymnasiumEnv) -> list[int]:
    return [process.pid for process in streams_of(env).processes if process.pid]


def streams_of(env: Any) -> Any:
    return env._streams


@pytest.mark.parametrize("name", WORLDS)
def test_steps_are_the_same_bit_for_bit(name: str) -> None:
    """In every world, after a jump to a state that the workers are not in, and after other resets, of fewer streams at
    last. There are as many workers as asked for, but none without a stream."""
    local, num_streams = make_env(WORLDS[name]), 3
    spec, tasks = local.spec, local.all_tasks()[torch.arange(num_streams) % len(local.all_tasks())]
    part = torch.rand(60, num_streams, *spec.action_shape, generator=torch.Generator().manual_seed(0))
    actions = (part * getattr(spec.action_space, "n", 2)).to(spec.action_dtype)
    theirs = local.reset(tasks, SEEDS[:num_streams])
    with closing(played(WORLDS[name], 2)) as there:
        ours = there.reset(tasks, SEEDS[:num_streams])
        assert torch.equal(there.all_tasks(), local.all_tasks()) and there.spec == local.spec
        best = (there.optimal_action(ours[0]), local.optimal_action(theirs[0]))
        assert torch.allclose(*best, equal_nan=True) and len({os.getpid(), *pids_of(there)}) == 3
        for number, action in enumerate(actions):
            assert_same(ours, theirs)
            if number == 20:
                kept = theirs
            if number == 30:
                ours = theirs = kept
            if number == 40:
                ours, theirs = (env.reset(tasks.flip(0), -SEEDS[:num_streams]) for env in (there, local))
            ours, theirs = there.step(type(ours[0])(*ours[0]), action), local.step(theirs[0], action)
        assert theirs[0].episode.min() > 1
        ours, theirs = (env.reset(tasks[:1], SEEDS[:1]) for env in (there, local))
        assert_same(there.step(ours[0], actions[0, :1]), local.step(theirs[0], actions[0, :1]))
        assert len(pids_of(there)) == 1


def test_a_dead_process_is_an_error() -> None:
    with closing(played(LAKE, 3)) as env:
        state, _ = env.reset(TASKS, SEEDS)
        pids = pids_of(env)
        os.kill(pids[2], signal.SIGKILL)
        with pytest.raises(PipelineError, match=r"process 2 \(exit code -9\) died.*env.num_workers=0"):
            for action in ACTIONS:
                state, _ = env.step(state, action)
        assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
        assert_same(env.step(state, ACTIONS[0]), HERE.step(state, ACTIONS[0]))  # with new processes


def test_a_process_that_does_not_answer_is_an_error() -> None:
    with closing(played(LAKE, 2)) as env:
        state, _ = env.reset(TASKS, SEEDS)
        os.kill(pids_of(env)[1], signal.SIGSTOP)
        streams_of(env).step_seconds = 0.5
        with pytest.raises(PipelineError, match="no answer in 0.5 s"):
            env.step(state, ACTIONS[0])


def test_many_slow_environments_have_a_limit_each() -> None:
    with closing(played(toy(fault="slow"), 1)) as env:
        streams_of(env).step_seconds = 0.5
        assert env.reset(torch.zeros(8, 1).long(), stream_seeds(0, 8))[1].obs.shape == (8,)


def refusal(make: Any, num_streams: int = NUM_STREAMS) -> str:
    """Message if environments cannot be made; no process is left behind."""
    env = played(LAKE, num_streams // 2)
    streams_of(env)._make = make
    with pytest.raises(PipelineError) as failed:
        env.reset(TASKS[:1].expand(num_streams, 1), stream_seeds(0, num_streams))
    message = str(failed.value)
    assert "\n" not in message and "env.num_workers=0" in message and not streams_of(env).processes, message
    return message


def test_processes_that_do_not_start_are_an_error() -> None:
    """As they end, have no memory, or are refused by the system."""
    assert "(exit code 1) died" in refusal(die)
    assert "no memory is left for the 2 environments of a process" in refusal(use_too_much_memory)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(free := os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 8, hard))
    try:
        message = refusal(die, 18)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "refuses 9 environment processes ([Errno 24] Too many open files)" in message
    assert "env.num_workers" in message and "ulimit -n" in message


def test_close_ends_the_processes_even_with_a_dead_one() -> None:
    env = played(LAKE, 2)
    env.close()  # nothing to end yet
    for victims in (0, 1):
        env.reset(TASKS[:2], SEEDS[:2])
        pids = pids_of(env)
        for pid in pids[:victims]:
            os.kill(pid, signal.SIGKILL)
        env.close()
        env.close()
        assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
