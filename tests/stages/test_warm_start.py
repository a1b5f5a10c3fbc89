"""A source agent that starts from histories of others, goes on by itself, and records that as a new history."""

import shutil
import time
from pathlib import Path

import pytest
from harness import TINY, curves_of, done, ended, refusal, results_of, start

from icrl.data.history_store import open_histories
from icrl.runs.files import read_json

LIFE = ("source.num_env_steps=600", "source.history_steps=600", "source.unroll_length=1", "source.evaluate=false")
FIRST = ("source=q_learning", "name=first", *LIFE)
SECOND = (
    *("source=dqn", "name=second", *LIFE, "source.initial_collect_steps=40", "source.replay_buffer_length=60"),
    *("source.mini_batch_length=2", "source.mini_batch_size=4", "source.priority_replay=true"),
    *("source.offline_buffer_dir=first", "source.offline_buffer_length=200", "source.offline_buffer_range=last"),
    *("source.rl_train_after_update_steps=150", "source.rl_train_every_update_steps=3"),
    *("source.learning_rate=0.02", "source.epsilon=0.1", "checkpoints.checkpoint_interval=30"),
    *("source.evaluate=true", "evals.eval_interval=100"),
    *("summaries.summary_interval=60", "summaries.summarize_first_interval=true"),
)


@pytest.fixture(scope="module")
def warmed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("warmed")
    tables_have_none = [option for option in TINY if not option.startswith("source.hidden_size")]
    done("train_agents", root, *FIRST, preset=tables_have_none)
    done("train_agents", root, *SECOND)
    return root


def test_it_begins_with_what_it_learned_from_others(warmed: Path) -> None:
    """The first histories begin clueless; the new ones, recorded from the first env step on, begin well. Nothing is
    played before; it is evaluated at env step 0, and shown over the updates of 150 iterations."""
    columns = [open_histories(warmed / "histories" / name).columns for name in ("first", "second")]
    assert {one["obs"].shape[1] for one in columns} == {300}
    first, second = (one["reward"][:, :60].mean() for one in columns)
    assert second > 1.5 * first
    folder = warmed / "logs/second/source"
    assert read_json(max(folder.glob("last-*.json")))["step"] == 150 + 300  # iterations: those without env steps on top
    found = read_json(folder / "evaluations.json")["evaluations"]
    assert [evaluation["step"] for evaluation in found] == [0, 200, 400, 600]
    assert found[0]["score"] > 0.7  # chance: 0.23
    curves = curves_of(folder / "pretraining")
    shown = ("loss", "td_error", "value", "epsilon", "learning_rate", "gradient_norm")
    assert set(curves) == {f"pretraining/{name}" for name in shown}
    assert curves["pretraining/loss"] == [*range(1, 61), 120]
    assert not (warmed / "logs/first/source/pretraining").exists()


def test_agents_may_be_best_before_they_play(warmed: Path) -> None:
    """Where they act at random from their first env step on."""
    spoiled = "source.epsilon={kind: linear, progress: iterations, points: [[0, 0], [150, 0], [151, 1]]}"
    short = ("source.num_env_steps=120", "source.history_steps=120", "source.num_updates_per_train_iter=2")
    done("train_agents", warmed, *SECOND, *short, "evals.eval_interval=30", "name=spoiled", spoiled)
    folder = warmed / "logs/spoiled/source"
    assert curves_of(folder / "pretraining")["pretraining/loss"] == [*range(2, 121, 2), 240]
    assert [path.name for path in folder.glob("best-*.pt")] == ["best-000000000.pt"]


def test_killed_amid_it_and_continued(warmed: Path, tmp_path: Path) -> None:
    """In the offline part, and with replay and its priorities in the checkpoint."""
    for part in ("histories/first", "logs/first"):
        shutil.copytree(warmed / part, tmp_path / part)
    process = start("train_agents", tmp_path, *SECOND)
    while not (tmp_path / "logs/second/source/last-000000060.json").exists() and process.poll() is None:
        time.sleep(0.002)
    process.kill()
    ended(process)
    done("train_agents", tmp_path, *SECOND)
    parts = ("histories/first", "histories/second", "logs/second/source")
    found, expected = (
        {name: value for name, value in results_of(root).items() if name.startswith(parts)}
        for root in (tmp_path, warmed)
    )
    assert found == expected


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("source.offline_buffer_dir=nobody", ["no histories in", "nobody"]),
        ("tasks.seed=1", ["no histories of 2 of the 5 training tasks", "tasks.seed"]),
        ("env.max_episode_steps=5", ["env.max_episode_steps=4", "has 5"]),
    ],
)
def test_histories_that_do_not_fit(warmed: Path, option: str, said: list[str]) -> None:
    message = refusal("train_agents", warmed, *SECOND, "name=third", option)
    assert all(part in message for part in said), message
