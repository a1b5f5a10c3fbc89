"""Curves of stage one against numbers worked out by hand and the final examination."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import torch
from toy import events_of

from icrl.app.compose import load_config
from icrl.app.root import Config
from icrl.config.options import replace
from icrl.contracts import Rollout
from icrl.envs import make_env
from icrl.envs.rooms import NUM_ACTIONS, STAY, UP
from icrl.programs import evaluate
from icrl.programs.train_agents import print_results
from icrl.recording.source_agents import SourceCurves, examine
from icrl.runs import writers
from icrl.spaces import discrete_spec

LEARNERS, ENVS, LENGTH = 3, 2, 5  # one learner for each of 3 tasks; an unroll is an episode of each environment
STEPS = LENGTH * ENVS  # env steps of a learner in an iteration
CONFIG = load_config(
    [
        *("name=board", "device=cpu", "env.size=3", "env.max_episode_steps=5", "source.num_learners=1"),
        *(f"source.num_envs={ENVS}", f"source.unroll_length={LENGTH}", "source.videos_per_task=0"),
        *("source.num_env_steps=1000", "source.history_steps=1000", "evaluation.num_episodes=9"),
        *("model.context_len=8", "summaries.num_summaries=0", "summaries.summary_interval=1"),
    ]
)
SPEC = discrete_spec(9, NUM_ACTIONS, (0.0, 1.0), 3, LENGTH)
WORLD, TASKS = SimpleNamespace(spec=SPEC), torch.zeros(LEARNERS, 1)
REWARDS = torch.tensor([3, 3, 0, 0, 1, 0])  # of the first five steps of each environment, learner by learner
SPREAD = {"return": (3.5 / 3, 0.05, 2.75), "success": (0.5, 0.05, 0.95), "episode_length": (5, 5, 5)}
KINDS = ("mean", "p05", "p95")
BASE = {f"source/{name}/{kind}": SPREAD[name][place] for name in SPREAD for place, kind in enumerate(KINDS)}
BASE |= {"source/fraction_solved": 1 / 3, "update/loss": 3.0}


def config_of(root: Path, source=None, **options):
    source = replace(CONFIG.source, **{"num_env_steps": 12 * STEPS} | (source or {}))
    return replace(CONFIG, root=str(root), source=source, summaries=replace(CONFIG.summaries, **options))


def unroll(ends: bool) -> Rollout:
    """`[5, 6]` steps in which each environment has the rewards of `REWARDS`; they may end an episode."""
    time = torch.arange(LENGTH)[:, None].expand(LENGTH, LEARNERS * ENVS)
    nothing = torch.zeros_like(time)
    last = (time == LENGTH - 1) & torch.tensor(ends)
    return Rollout(time, nothing + 2, (time < REWARDS).long(), time, time, nothing.bool(), last, time)


@contextmanager
def board_of(config: Config) -> Iterator[SourceCurves]:
    """Curves whose loggers are closed in the end, as in a run."""
    with ExitStack() as stack:
        board = SourceCurves(config, WORLD, TASKS, 0)
        stack.enter_context(board.logger)
        yield board


def points(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = events_of(folder)
    return {tag: [(e.step, round(e.value, 5)) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_curves_by_hand(tmp_path: Path) -> None:
    """Returns 3, 0 and 1/2 of the learners; the 5th percentile of three lies at 0.1 of the way from the first to the
    second. Over env steps of a learner; nothing else is shown unless it is asked for."""
    config = config_of(tmp_path, summary_interval=4)
    with board_of(config) as board:
        for iteration in range(1, 13):
            board.add(iteration, unroll(True), {"loss": torch.tensor([1.0, 2.0, 6.0])}, None)
    folder = config.folder("logs") / "source"
    assert points(folder) == {tag: [(at, round(value, 5)) for at in (40, 80, 120)] for tag, value in BASE.items()}
    assert events_of(folder).Tags()["histograms"] == []


def test_curves_begin_when_every_agent_has_ended_an_episode(tmp_path: Path) -> None:
    """In the first iteration only the luckiest agent ends one: the mean over agents would be its own."""
    early = unroll(False)
    early.truncated[-1, :ENVS] = True
    with board_of(config_of(tmp_path)) as board:
        board.add(1, early, {}, None)
        board.add(2, unroll(True), {}, None)
    found = points(tmp_path / "logs" / "board" / "source")
    assert [at for at, _ in found["source/return/mean"]] == [2 * STEPS]
    assert found["source/fraction_solved"] == [(STEPS, round(1 / 3, 5)), (2 * STEPS, round(1 / 3, 5))]


class Split:
    """Of two learners of each task the first goes up, the second stays; two environments each."""

    def initial_carry(self, num_streams):
        return ()

    def act(self, carry, step, noise):
        return torch.where(torch.arange(len(noise)) // ENVS % 2 == 0, UP, STAY), carry


def test_who_solved_its_task(tmp_path: Path) -> None:
    """With goals above and below the start: the first learner of the first task alone gets there, in one step."""
    config = config_of(tmp_path, {"num_learners": 2})
    env = make_env(config.env)
    found, success = examine(config, env, Split(), env.all_tasks()[[1, 6]], [0]), [[1.0, 0.0], [0.0, 0.0]]
    unsolved = [{"task": f"goal_{row}_1", "success": each} for row, each in zip((0, 2), success, strict=True)]
    assert found == {"num_tasks": 2, "success": success, "unsolved": unsolved}
    folder = config.folder("logs") / "source"
    (image,) = events_of(folder).Images("goals")
    assert image.step == 12 * STEPS and (folder / "goals.png").exists()


def test_who_did_not_solve_its_task_is_told_of_ten(capsys) -> None:
    unsolved = [{"task": f"task_{task}", "success": [0.5, 1.0]} for task in range(12)]
    named = [f"  not solved: task_{task}, success of its agents [0.5, 1.0]" for task in range(10)]
    print_results(load_config([]), {"num_tasks": 20, "unsolved": unsolved})
    *lines, last = capsys.readouterr().out.splitlines()[:13]
    assert lines == ["8 of 20 training tasks solved by all their agents", *named, "  ... and 2 more"]
    assert last.startswith("histories ")


def test_only_curves_for_tensorboard_are_shown_with_it(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(writers._classes, "own", writers.Writer)
    monkeypatch.setattr(evaluate, "filming", tuple)
    for name in ("tensorboard", "own"):
        config = load_config([f"root={tmp_path}", f"summaries.writer={name}"])
        print_results(config, {"num_tasks": 20, "unsolved": []})
        guide = evaluate._guide(Mock(config=config, folder=tmp_path, main="held_out"))
        for told in (capsys.readouterr().out, guide):
            *_, last = told.splitlines()
            assert last.endswith(f" {config.folder('logs')}") and ("tensorboard --logdir" in last) == (name != "own")
