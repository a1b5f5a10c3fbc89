"""Held-out tasks are for the end: nothing that is trained, and no choice between checkpoints, can know of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import TINY, run
from torch import Tensor

from icrl.config.compose import load_config
from icrl.envs import make_env
from icrl.envs.rooms import DarkRoom
from icrl.envs.tasks import split_tasks
from icrl.evaluation import trained as periodic
from icrl.evaluation.in_context import Adaptation
from icrl.runs.checkpoint import load_newest
from icrl.runs.files import read_json

ROOM = ("env.size=5", "tasks.num_train=14", "data.num_development_tasks=3", "evals.eval_interval=1")
CPU = torch.device("cpu")


def goals_of() -> tuple[set[int], set[int]]:
    """The goals of the training and of the held-out tasks."""
    config = load_config([*TINY, *ROOM])
    env = make_env(config.env)
    goals, split = env.all_tasks()[:, 0], split_tasks(env, config)
    return set(goals[split.train].tolist()), set(goals[split.held_out].tolist())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root: Path = tmp_path_factory.mktemp("leaks")
    for stage in ("train_agents", "train_gpt"):
        assert run(stage, root, *ROOM).code == 0
    return root


def checkpoints_of(root: Path, name: str) -> list[tuple[int, list[Tensor]]]:
    """When the newest `last` and the `best` checkpoint of a run were made, and their parameters."""
    found = []
    for kind in ("last", "best"):
        newest = load_newest(root / "logs" / name / "gpt", kind, CPU)
        assert newest
        found.append((newest[0]["step"], list(newest[0]["model"].values())))
    return found


def watched(played: set[int]) -> type[DarkRoom]:
    """A room that notes the goals of all tasks that are played in it."""

    class Watched(DarkRoom):
        def outcomes(self, task: Tensor, state_index: Tensor, action: Tensor) -> Any:
            played.update(task[..., 0].unique().tolist())
            return super().outcomes(task, state_index, action)

    return Watched


def test_no_source_agent_acts_on_a_held_out_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in training, not in an evaluation amid it, and not after it."""
    played: set[int] = set()
    monkeypatch.setattr("icrl.envs.rooms.DarkRoom", watched(played))
    assert run("train_agents", tmp_path, *ROOM).code == 0
    train, held_out = goals_of()
    assert held_out and played == train


def test_all_that_training_and_a_choice_of_recipes_play_are_development_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what an evaluation on these plays beside them are tasks that the model learned from."""
    more = (*ROOM, "tasks.split=list", "tasks.held_out=[0,3,7]")
    assert run("train_agents", tmp_path, *more).code == 0
    tasks = read_json(tmp_path / "histories/tiny/manifest.json")["tasks"]
    train, held_out = ([tasks["all"][task][0] for task in tasks[side]] for side in ("train", "held_out"))
    assert sorted(held_out) == [tasks["all"][task][0] for task in (0, 3, 7)]
    played: set[int] = set()
    monkeypatch.setattr("icrl.envs.rooms.DarkRoom", watched(played))
    for program in ("train_gpt", "train_ilql", "extract_policy"):
        assert run(program, tmp_path, *more).code == 0
        assert played == set(train[-3:]), program
    assert run("evaluate", tmp_path, *more, "evaluation.tasks=development").code == 0
    assert not played & set(held_out)
    results = read_json(tmp_path / "logs/tiny/evaluation-development/results.json")
    assert "held_out_tasks" not in results and set(results["final"]) == {"development", "train"}
    assert [goal for (goal,) in results["development_tasks"]] == train[-3:]
    assert [goal for (goal,) in results["train_tasks"]] == train[:-3]
    assert set(results["references"]) == {"development", "train"}
    assert not (tmp_path / "logs/tiny/evaluation").exists()


def test_what_happens_on_development_tasks_chooses_and_changes_nothing_else(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose evaluations see the contrary of it there ends with the same bits, and another best checkpoint."""
    play = periodic.play_episodes

    def contrary(policy: Any, env: Any, tasks: Tensor, *others: int) -> tuple[Adaptation, Any]:
        found, transitions = play(policy, env, tasks, *others)
        return found._replace(returns=-found.returns), transitions

    expected = checkpoints_of(trained, "tiny")
    monkeypatch.setattr(periodic, "play_episodes", contrary)
    assert run("train_gpt", trained, *ROOM, "name=contrary", "histories=tiny").code == 0
    found = checkpoints_of(trained, "contrary")
    assert _same(found[0], expected[0]) and not _same(found[1], expected[1])


def _same(one: tuple[int, Sequence[Tensor]], other: tuple[int, Sequence[Tensor]]) -> bool:
    return one[0] == other[0] and all(torch.equal(a, b) for a, b in zip(one[1], other[1], strict=True))
