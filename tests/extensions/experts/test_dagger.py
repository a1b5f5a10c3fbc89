"""Dataset aggregation: histories that a trained model plays, with the expert's action at every step."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from harness import TINY, done, kill_late, refusal
from torch import Tensor

import icrl
from icrl.data.history_store import open_histories
from icrl.nn.gpt import Window, context_of
from icrl.runs.checkpoint import saved_step, sidecars

SOURCE = ("source.num_learners=1", "source.num_envs=2", "source.unroll_length=6", "source.videos_per_task=0")
STEPS = ("source.num_env_steps=48", "source.history_steps=48")
PRESET = tuple(one for one in TINY if not one.startswith(("source.", "device.amp"))) + SOURCE + STEPS
COPY = ("source=noise_distillation", "policy.temperature=0.001")
LEARNS = ("objective=dpt", "trainer.num_iterations=300", "evals.eval_interval=300", "checkpoints.num_checkpoints=1")
LEARNS += ("checkpoints.checkpoint_interval=0", "model.residual_dropout=0", "model.attention_dropout=0")
PLAYS = ("source=dagger", "run=tiny", "name=played", "policy.temperature=0.001")


def complete(stage: str, root: Path, *options: str) -> None:
    done(stage, root, *options, preset=PRESET)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Root with a model, which copies an expert, and histories that it played; only to be read."""
    root = tmp_path_factory.mktemp("dagger")
    for stage in ("train_agents", "train_gpt"):
        complete(stage, root, *COPY, *LEARNS)
    complete("train_agents", root, *PLAYS)
    return root


def columns_of(root: Path) -> dict[str, Tensor]:
    """Columns `[N, T]` of the histories that were played."""
    columns = open_histories(root / "histories/played").columns
    return {name: torch.tensor(np.array(column)).long() for name, column in columns.items()}


def test_the_model_plays_and_the_planner_labels(played: Path) -> None:
    """Until the first context is full, actions are those that the model finds most probable, read as one window. Labels
    lead along shortest paths: one cell nearer to the goal, or none on it."""
    columns, store = columns_of(played), open_histories(played / "histories/played")
    policy = icrl.load(played / "logs/tiny").policy
    first = {name: column[:, : policy.model.config.context_len] for name, column in columns.items()}
    window = Window(*(first[name] for name in ("obs", "action", "reward", "timestep")))
    with torch.no_grad():
        logits = policy.model(context_of(window._replace(reward=window.reward.float())))
    assert logits.argmax(-1).equal(first["action"]) and len(first["action"].unique()) > 1
    goal = torch.from_numpy(store.row_tasks)[:, None]
    goal = goal + (goal >= 4)  # no task has its goal in the centre, cell 4
    rows, cols = torch.tensor([0, -1, 0, 1, 0]), torch.tensor([0, 0, 1, 0, -1])  # stay, up, right, down, left
    label, (row, col) = columns["optimal_action"], (columns["obs"] // 3, columns["obs"] % 3)
    before = (goal // 3 - row).abs() + (goal % 3 - col).abs()
    after = (goal // 3 - row - rows[label]).abs() + (goal % 3 - col - cols[label]).abs()
    assert after.equal((before - 1).clamp(min=0)) and not label.equal(columns["action"])


def test_a_killed_run_ends_with_the_same_bits(played: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(played, tmp_path / "root"))
    logs, before = root / "logs/played/source", columns_of(played)
    kill_late(logs, min(saved_step(path) for path in sidecars(logs, "last")))
    complete("train_agents", root, *PLAYS)
    assert all(column.equal(before[name]) for name, column in columns_of(root).items())


def test_a_model_is_trained_on_both_histories(played: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(played, tmp_path / "root"))
    complete("train_gpt", root, *COPY, "objective=dpt", "histories=[tiny,played]", "name=again")
    assert len(icrl.load(root / "logs/again").about["description"]["histories"]) == 2


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        (("run=other",), ["name=other", "run=other"]),
        (("run=nobody",), ["run=nobody", "logs/nobody"]),
        (("policy.model=finetuned",), ["run=tiny", "finetuned"]),
        (("tasks.seed=1",), ["run=tiny", "tasks.seed=0", "1"]),
        (("env.size=4",), ["run=tiny", "env.size=3", "4"]),
    ],
)
def test_refusals(played: Path, changed: tuple[str, ...], names: list[str]) -> None:
    message = refusal("train_agents", played, *PLAYS, "name=other", *changed, preset=PRESET)
    assert all(name in message for name in names), message
