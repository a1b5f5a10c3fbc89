"""Point game through all stages: what is recorded and shown, and what a killed run ends with."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from harness import SMALL, STAGES, done, kill_late, results_of
from installed import needs

from icrl.data.history_store import open_histories
from icrl.runs.files import read_json

POINTS = (
    *(*SMALL, "experiment=point_game", "env.opponents=[tables_6,order_0123,order_3210,order_1203]"),
    *("env.max_episode_steps=6", "source.videos_per_task=0"),
    *("tasks.num_train=6", "tasks.num_held_out=3", "source.num_env_steps=360", "source.history_steps=320"),
    *("source.hidden_size=8", "source.unroll_length=5", "data.min_final_success=0"),
    *("checkpoints.num_checkpoints=0", "checkpoints.checkpoint_interval=2", "checkpoints.keep_last=9"),
    *("evaluation.ablations=false", "evaluation.temperatures=[]"),
)
AGENT = ("env.role=agent", "env.opponents=[zeillinger,random_pair,weak_spivakovsky,all_coordinates,spivakovsky]")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a finished run of all stages; only to be read."""
    root = tmp_path_factory.mktemp("points")
    for stage in STAGES:
        done(stage, root, preset=POINTS)
    return root


@pytest.fixture
def root(played: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(played, tmp_path / "root"))


def test_a_legal_game_is_recorded_and_the_model_stands_beside_chance_and_the_best_known_players(played):
    results = read_json(played / "logs/small/evaluation/results.json")
    curves = results["curves"]
    assert {"model, held-out tasks", "model, training tasks", "random", "Zeillinger", "Weak Spivakovsky"} <= set(curves)
    assert {"A2C, training tasks, start of life", "A2C, training tasks, end of life"} <= set(curves)
    assert all(np.isfinite(curve["mean"]).all() for measures in curves.values() for curve in measures.values())
    assert "optimum" not in curves and len(results["held_out_tasks"]) == 3
    histories = open_histories(played / "histories/small")
    spec, columns = histories.spec, histories.columns
    assert spec.points == (8, 4) and columns["obs"].shape == (24, 160, 8 * 4 + 4 + 11) == columns["next_obs"].shape
    assert columns["obs"].dtype == np.uint16 and columns["action"].dtype == np.uint8
    legal = np.take_along_axis(columns["obs"][..., -11:], columns["action"][..., None].astype(np.int64), -1)
    assert (legal == 1).all() and (columns["optimal_action"] == 11).all()
    left = (columns["next_obs"][..., :32].reshape(24, 160, 8, 4)[..., 0] > 0).sum(-1)
    assert ((left == 1) == columns["terminated"]).all() and (columns["reward"] == columns["terminated"]).all()


def test_a_killed_run_ends_with_the_bits_of_one_that_was_not(played, root):
    """Stage one goes on from a checkpoint amid the games."""
    folder = root / "logs/small/source"
    first, *later = sorted(int(path.stem[5:]) for path in folder.glob("last-*.pt"))
    assert later
    kill_late(folder, first)
    done("train_agents", root, preset=POINTS)
    assert results_of(root) == results_of(played)


@needs("other_worlds")
def test_opponents_that_were_learned_from_are_not_new(root):
    """By whatever name they go."""
    same = "env.opponents=[first,last,order_1203,tables_6]"
    done("evaluate", root, same, "tasks.num_held_out=0", preset=POINTS)
    (folder,) = [path for path in (root / "logs/small").iterdir() if path.name.startswith("evaluation-opponents=")]
    assert len(read_json(folder / "results.json")["held_out_tasks"]) == 3


def test_trials_of_the_game(root):
    done("finetune", root, preset=POINTS)


def test_an_agent_through_all_stages(tmp_path):
    fewer = ("tasks.num_train=3", "tasks.num_held_out=2", "evaluation.num_streams=1", "evaluation.num_episodes=2",
             "source.num_env_steps=120", "source.history_steps=120", "trainer.num_iterations=1")  # fmt: skip
    for stage in STAGES:
        done(stage, tmp_path, *AGENT, *fewer, preset=POINTS)
    curves = read_json(tmp_path / "logs/small/evaluation/results.json")["curves"]
    assert {"model, held-out tasks", "random", "First", "Last"} <= set(curves)
    columns = open_histories(tmp_path / "histories/small").columns
    legal = np.take_along_axis(columns["obs"][..., -4:], columns["action"][..., None].astype(np.int64), -1)
    assert (legal == 1).all() and (columns["reward"] == 1 - columns["terminated"]).all()
