"""Held-out tasks are for the end: nothing that is trained, and no choice between checkpoints, can know of them."""

from typing import Any

from harness import done
from torch import Tensor

from icrl.data.windows import Windows
from icrl.envs import WORLDS
from icrl.envs.rooms import DarkRoom
from icrl.runs.files import read_json

ROOM = (
    *("env.size=5", "tasks.num_train=21", "data.num_development_tasks=3", "evals.eval_interval=1"),
    *("tasks.split=list", "tasks.held_out=[0,3,7]"),
)


def watched(played: set[int]) -> type[DarkRoom]:
    """A room that notes the goals of all tasks that are played in it."""

    class Watched(DarkRoom):
        def outcomes(self, task: Tensor, state_index: Tensor, action: Tensor) -> Any:
            played.update(task[..., 0].unique().tolist())
            return super().outcomes(task, state_index, action)

    return Watched


def test_held_out_tasks_are_played_in_their_evaluation_alone(tmp_path, monkeypatch):
    """Agents play training tasks; later training and a choice of recipes play development tasks, and beside these what
    the model learned from."""
    played: set[int] = set()
    monkeypatch.setitem(WORLDS, "dark_room", watched(played))
    done("train_agents", tmp_path, *ROOM)
    tasks = read_json(tmp_path / "histories/tiny/manifest.json")["tasks"]
    train, held_out = ([tasks["all"][task][0] for task in tasks[side]] for side in ("train", "held_out"))
    assert sorted(held_out) == [tasks["all"][task][0] for task in (0, 3, 7)] and played == set(train)
    played.clear()
    done("train_gpt", tmp_path, *ROOM)
    assert played == set(train[-3:])
    done("finetune", tmp_path, *ROOM, "finetune.trial_steps=8", "finetune.num_iterations=1")
    assert played == set(train)
    done("evaluate", tmp_path, *ROOM, "evaluation.tasks=development")
    assert not played & set(held_out)
    results = read_json(tmp_path / "logs/tiny/evaluation-development/results.json")
    assert "held_out_tasks" not in results and set(results["final"]) == {"development", "train"}
    assert [goal for (goal,) in results["development_tasks"]] == train[-3:]
    assert [goal for (goal,) in results["train_tasks"]] == train[:-3]
    assert set(results["references"]) == {"development", "train"}
    assert not (tmp_path / "logs/tiny/evaluation").exists()


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
