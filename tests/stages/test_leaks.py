"""Held-out tasks are for the end: nothing that is trained, and no choice between checkpoints, can know of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import TINY, run
from torch import Tensor

from src.config import load_config
from src.envs import make_env
from src.envs.dark_room import DarkRoom
from src.envs.tasks import split_tasks
from src.evaluation import periodic
from src.evaluation.in_context import Adaptation
from src.training.checkpoint import load_newest

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
        found.append((newest[0]["update"], list(newest[0]["model"].values())))
    return found


def test_no_source_agent_acts_on_a_held_out_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in training, not in an evaluation amid it, and not after it."""
    played: set[int] = set()

    class Watched(DarkRoom):
        def outcomes(self, task: Tensor, place: Tensor, action: Tensor) -> Any:
            played.update(task[..., 0].unique().tolist())
            return super().outcomes(task, place, action)

    monkeypatch.setattr("src.envs._ENVS", {"dark_room": Watched})
    assert run("train_agents", tmp_path, *ROOM).code == 0
    train, held_out = goals_of()
    assert held_out and played == train


def test_what_happens_on_held_out_tasks_changes_no_checkpoint(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose evaluations see the contrary of it on held-out tasks ends with the same bits, and so does one with
    none at all; what they see on validation tasks, which are training tasks, chooses."""
    train, held_out = goals_of()
    play, parts = periodic.play_episodes, []

    def contrary(of: set[int]) -> Any:
        def played(policy: Any, env: Any, tasks: Tensor, *others: int) -> tuple[Adaptation, Any]:
            found, transitions = play(policy, env, tasks, *others)
            goals = set(tasks[:, 0].tolist())
            parts.append(goals)
            return (found._replace(returns=-found.returns) if goals <= of else found), transitions

        return played

    expected = checkpoints_of(trained, "tiny")
    for name, of, changes in (("held_out", held_out, False), ("validation", train, True)):
        monkeypatch.setattr(periodic, "play_episodes", contrary(of))
        assert run("train_gpt", trained, *ROOM, f"name={name}", "histories=tiny").code == 0
        found = checkpoints_of(trained, name)
        assert _same(found[0], expected[0])
        assert _same(found[1], expected[1]) is not changes, name
    assert held_out in parts
    assert all(goals == held_out or (goals < train and len(goals) == 3) for goals in parts)


def _same(one: tuple[int, Sequence[Tensor]], other: tuple[int, Sequence[Tensor]]) -> bool:
    return one[0] == other[0] and all(torch.equal(a, b) for a, b in zip(one[1], other[1], strict=True))
