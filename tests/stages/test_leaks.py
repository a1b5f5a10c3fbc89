"""Held-out tasks are for the end: nothing that is trained, and no choice between checkpoints, can know of them."""

from typing import Any

from harness import done
from torch import Tensor

from icrl.data.windows import Windows
from icrl.envs import WORLDS
from icrl.envs.rooms import DarkRoom
from icrl.runs.files import read_json


def watched(played: set[int]) -> type[DarkRoom]:
    """A room that notes the goals of all tasks that are played in it."""

    class Watched(DarkRoom):
        def outcomes(self, task: Tensor, state_index: Tensor, action: Tensor) -> Any:
            played.update(task[..., 0].unique().tolist())
            return super().outcomes(task, state_index, action)

    return Watched


def test_held_out_tasks_are_not_played_to_choose_a_recipe(root, monkeypatch):
    """Later training plays development tasks, and a choice of recipes beside these what the model learned from."""
    played: set[int] = set()
    monkeypatch.setitem(WORLDS, "dark_room", watched(played))
    tasks = read_json(root / "histories/tiny/manifest.json")["tasks"]
    train, held_out = ([tasks["all"][task][0] for task in tasks[side]] for side in ("train", "held_out"))
    new = ("name=new", "run=new", "histories=tiny")
    done("train_gpt", root, *new)
    assert played == set(train[-2:])
    done("evaluate", root, *new, "evaluation.tasks=development")
    assert not played & set(held_out)
    results = read_json(root / "logs/new/evaluation-development/results.json")
    assert "held_out_tasks" not in results and set(results["final"]) == {"development", "train"}
    assert [goal for (goal,) in results["development_tasks"]] == train[-2:]
    assert [goal for (goal,) in results["train_tasks"]] == train[:-2]
    assert set(results["references"]) == {"development", "train"}


def test_a_region_that_is_set_aside_is_learned_by_no_model(tmp_path, monkeypatch):
    """In a room with a quadrant held out, the opposite one has source agents, but in no window of a model."""
    drawn: set[int] = set()
    windows = Windows.__init__

    def noting(self: Any, histories: Any, config: Any, objective: Any, tasks: list[int], *others: Any) -> None:
        drawn.update(goal for (goal,) in (histories.tasks["all"][task] for task in tasks))
        windows(self, histories, config, objective, tasks, *others)

    monkeypatch.setattr(Windows, "__init__", noting)
    quadrant = ("env.size=5", "tasks.split=quadrant", "tasks.num_train=0", "data.development=region")
    for program in ("train_agents", "train_gpt"):
        done(program, tmp_path, *quadrant)
    tasks = read_json(tmp_path / "histories/tiny/manifest.json")["tasks"]
    train, held_out = ({tasks["all"][task][0] for task in tasks[side]} for side in ("train", "held_out"))
    region = {18, 19, 23, 24}
    assert held_out == {0, 1, 5, 6} and region < train and drawn == train - region
