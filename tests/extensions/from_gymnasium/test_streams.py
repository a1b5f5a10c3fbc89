"""Streams of Gymnasium environments: their clocks, ends and errors. Their steps are compared in `test_border`."""

import itertools
import os
import signal
import time
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import TINY, done, results_of, run
from torch import Tensor
from toy_env import TOY, Shaped, Toy, lake, shaped, toy
from toy_env import played as played_in

from icrl.config.options import replace
from icrl.contracts import PipelineError, Step
from icrl.extensions.from_gymnasium import guard
from icrl.extensions.from_gymnasium.guard import Guard
from icrl.extensions.from_gymnasium.gymnasium_env import GymnasiumConfig, GymnasiumEnv
from icrl.extensions.from_gymnasium.streams import PlayedState
from icrl.randomness import stream_seeds
from icrl.sources.collect import UnrollWorker

TASKS = torch.tensor([[0], [1], [2], [2], [1], [0]])
SEEDS = stream_seeds(0, 6)
FIRST = TASKS[:1]  # of worlds with one task


def play(env: Any, tasks: Tensor, seeds: Tensor, actions: Tensor) -> list[tuple[PlayedState, Step]]:
    played = [env.reset(tasks, seeds)]
    for action in actions:
        played.append(env.step(played[-1][0], action))
    return played


def test_our_time_limit_counts_unless_an_environment_ends_sooner_by_itself() -> None:
    own, sooner = lake(max_episode_steps=130), toy(fault="truncate", at=4, slip=0, size=30)
    for config, ends in ((own, [130, 260]), (sooner, [*range(4, 271, 4)])):  # lakes are registered with 100 steps
        env = GymnasiumEnv(config)
        played = play(env, FIRST, SEEDS[:1], torch.zeros(270, 1).long())  # against the wall
        assert [number for number, (_, step) in enumerate(played) if step.truncated] == ends
        assert not any(step.terminated for _, step in played)


def test_rewards_are_those_of_the_world() -> None:
    tasks = [{"reward": torch.tensor(0.1).item(), "slip": 0}]  # rounded to float32
    env = GymnasiumEnv(lake(id=TOY, tasks=tasks, width=0, reward_values=[2, 0, 0.1]))
    played = play(env, FIRST, SEEDS[:1], torch.ones(12, 1).long())
    found = {(float(step.reward), bool(step.terminated)) for _, step in played[1:]}
    assert found == {(0, False), (tasks[0]["reward"], True)}


def test_environments_are_closed_when_they_are_no_longer_needed() -> None:
    Toy.open_ones.clear()
    env = GymnasiumEnv(lake(id=TOY, tasks=[{}, {"size": 5}], width=0))
    assert not Toy.open_ones
    for tasks in (TASKS % 2, TASKS % 2, 1 - TASKS % 2, TASKS[:2] % 2):
        env.step(env.reset(tasks, SEEDS[: len(tasks)])[0], torch.zeros(len(tasks)).long())
        assert len(Toy.open_ones) == len(tasks)
    env.close()
    env.close()
    assert not Toy.open_ones


def test_an_environment_plays_other_tasks_that_differ_in_options_of_the_reset_alone() -> None:
    tasks = [{"weight": 2.0, "reset.start": 1.0}, {"weight": 2.0, "reset.start": 5.0}, {"weight": 1.0}]
    orders, actions = [torch.tensor(order)[:, None] for order in ([0, 1], [1, 1], [1, 2])], torch.rand(9, 2, 2)
    env, made = GymnasiumEnv(shaped(tasks=tasks)), list[int]()
    for order in orders:
        Shaped.made.clear()
        played = play(env, order, SEEDS[:2], actions)
        made.append(len(Shaped.made))
        anew = play(GymnasiumEnv(shaped(tasks=tasks)), order, SEEDS[:2], actions)
        for (_, one), (_, other) in zip(played, anew, strict=True):
            assert one.obs.equal(other.obs) and one.reward.equal(other.reward)
    assert made == [2, 0, 1]


# Of an exception that no process can send, of an end of the process, and of a loop without an end.
REPORTED_BY_WORKERS = [toy(fault="step"), toy(fault="die"), replace(toy(fault="deaf"), timeout=0.5)]


@pytest.mark.parametrize(
    ("config", "parts"),
    [
        (toy(fault="reset"), ["env.tasks[0]", "LookupError: no such thing"]),
        (toy(fault="step"), [TOY, "env.tasks[0]", "Unpicklable: cannot go on"]),
        (toy(fault="obs"), ["env.tasks[0]", "observation", "Discrete(5)"]),
        (toy(reward=0.7, slip=0), ["env.reward_values=[0.0, 1.0]", "lacks 0.7", "env.reward_values=[] if"]),
        (toy(fault="die"), ["env.tasks[0], episode 1, step 3: SystemExit: os._exit(0)"]),
        (toy(fault="base"), ["env.tasks[0], episode 1, step 3: BaseException: mine"]),
        (
            replace(toy(fault="deaf"), timeout=0.5),
            ["env.tasks[0], episode 1, step 3: HangError: no answer in 0.5 s, the limit set by env.timeout"],
        ),
        (shaped(fault="nan", at=2), ["env.tasks[0], episode 1, step 2: ", "not finite"]),
        (shaped(fault="shape", at=2), ["env.tasks[0], episode 1, step 2: ", "its observation"]),
        (shaped(fault="reward", at=2), ["env.tasks[0], episode 1, step 2: ", "its reward nan is not a finite"]),
        (shaped(fault="range", obs="multi"), ["env.tasks[0], episode 1, reset: ", "MultiDiscrete([3 7])"]),
    ],
)
def test_errors_inside_are_reported(config: GymnasiumConfig, parts: list[str]) -> None:
    for num_workers in (0, *[1] * (config in REPORTED_BY_WORKERS)):
        with closing(played_in(config, num_workers)) as env, pytest.raises(PipelineError) as failed:
            actions = torch.ones(9, 2, *env.spec.action_shape, dtype=env.spec.action_dtype)
            play(env, TASKS[:2] * 0, SEEDS[:2], actions)
        message = str(failed.value)
        assert all(part in message for part in parts) and "\n" not in message, message


def test_what_ends_the_program_as_it_is_closed_is_an_error() -> None:
    env = GymnasiumEnv(toy())
    env.step(env.reset(FIRST, SEEDS[:1])[0], torch.tensor([0]))
    Toy.open_ones[-1].fault = "close"
    with pytest.raises(PipelineError, match="SystemExit: 0"):
        env.close()


def test_a_turn_that_waits_for_a_core_is_not_over(monkeypatch: pytest.MonkeyPatch) -> None:
    for waited, is_over in ((time.monotonic, False), (lambda: 0.0, True)):
        monkeypatch.setattr(guard, "_seconds_waited", waited)
        ends = pytest.raises(PipelineError, match=r"no answer in 0\.2 s") if is_over else nullcontext()
        with ends, Guard(0.2, lambda: "here"):
            time.sleep(0.5)


def test_a_guard_leaves_alarms_and_exits_of_others_as_they_are() -> None:
    """Those of a program around it, and of a process that the environment forks."""
    heard: list[int] = []
    before, leave = signal.signal(signal.SIGALRM, lambda *_: heard.append(1)), os._exit
    left = signal.setitimer(signal.ITIMER_REAL, 100.0)
    try:
        with Guard(50.0, lambda: "here"):
            if not (child := os.fork()):
                os._exit(5)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
        with pytest.raises(KeyboardInterrupt), Guard(50.0, lambda: "here"):
            raise KeyboardInterrupt
        assert os._exit is leave and 50 < signal.getitimer(signal.ITIMER_REAL)[0] <= 100
        signal.raise_signal(signal.SIGALRM)
        assert heard
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *left)


def test_it_goes_on_after_an_error() -> None:
    Toy.open_ones.clear()
    env, up = GymnasiumEnv(toy(fault="step", at=3, slip=0, size=30)), torch.tensor([1])
    state = play(env, FIRST, SEEDS[:1], torch.ones(2, 1).long())[-1][0]
    with pytest.raises(PipelineError):
        env.step(state, up)
    assert not Toy.open_ones
    again, after = env.reset(FIRST, SEEDS[:1])
    assert env.step(again, up)[1].obs == after.obs + 1


def test_an_environment_that_remembers_earlier_episodes_cannot_be_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Toy, "steps_of_all", 0)
    env = GymnasiumEnv(toy(fault="memory", at=2, slip=0, size=30))
    played = play(env, FIRST, SEEDS[:1], torch.ones(4, 1).long())
    with pytest.raises(PipelineError, match="cannot be resumed"):
        env.step(PlayedState(*played[-1][0]), torch.tensor([1]))


PRESET = tuple(option for option in TINY if not option.startswith("env."))
SMALL = (
    *("env=gymnasium", "env.max_episode_steps=4", "tasks.num_train=2", "data.num_development_tasks=1"),
    *("source.evaluate=false", "source.num_envs=1", "source.unroll_length=5"),
    *("source.num_env_steps=30", "source.history_steps=30"),
    "env.tasks=[{map_name: 4x4}, {map_name: 4x4, is_slippery: false}, {map_name: 4x4, success_rate: 0.5}]",
)


def test_an_interrupted_run_equals_an_uninterrupted_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of episodes: 5 steps an unroll, 4 an episode. Workers also step the episodes of the trained
    agents."""
    calls, play_on, in_workers, asked = itertools.count(1), UnrollWorker.play, GymnasiumEnv.in_workers, list[int]()

    def ask(self: GymnasiumEnv) -> GymnasiumEnv:
        asked.append(self._config.num_workers)
        return in_workers(self)

    def play_until(self: Any) -> Any:
        if next(calls) == 4:
            raise BaseException("killed")
        return play_on(self)

    done("train_agents", tmp_path / "whole", *SMALL, preset=PRESET)
    expected = results_of(tmp_path / "whole")
    assert any(name.endswith("obs.npy") for name in expected) and any(name.endswith(".pt") for name in expected)
    monkeypatch.setattr(UnrollWorker, "play", play_until)
    monkeypatch.setattr(GymnasiumEnv, "in_workers", ask)
    for workers in (0, 2):
        calls, root, options = itertools.count(1), tmp_path / str(workers), (*SMALL, f"env.num_workers={workers}")
        with pytest.raises(BaseException, match="killed"):
            run("train_agents", root, *options, preset=PRESET)
        done("train_agents", root, *options, preset=PRESET)
        assert next(calls) == 4 + 4 + 1  # it went on from the checkpoint after the second unroll
        assert asked[-3:] == [workers] * 3  # both parts of the training, and the episodes after it
        ours = results_of(root)
        assert set(ours) == set(expected)
        for name in expected:
            assert ours[name] == expected[name] or (workers and not name.endswith((".npy", ".pt"))), name
