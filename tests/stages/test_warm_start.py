"""A source agent that starts from histories of others, goes on by itself, and records that as a new history."""

import json
import shutil
import time
from pathlib import Path

import pytest
from harness import TINY, curves_of, ended, files_of, results_of, run, start

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
    for options, preset in ((FIRST, tables_have_none), (SECOND, TINY)):
        outcome = run("train_agents", root, *options, preset=preset)
        assert outcome.code == 0, outcome.err
    return root


def test_it_begins_with_what_it_learned_from_others(warmed: Path) -> None:
    """The first histories begin clueless; the new ones, recorded from the first env step on, begin well."""

    def beginning(name: str) -> float:
        histories = open_histories(warmed / "histories" / name)
        assert histories.columns["obs"].shape[1] == 300
        return float(histories.columns["reward"][:, :60].mean())

    assert beginning("second") > 1.5 * beginning("first")


def test_nothing_is_played_before_the_online_part(warmed: Path) -> None:
    sidecar = sorted((warmed / "logs/second/source").glob("last-*.json"))[-1]
    assert json.loads(sidecar.read_text())["step"] == 150 + 300  # iterations: those without env steps come on top


def test_what_was_learned_from_others_is_evaluated_and_shown(warmed: Path) -> None:
    """At env step 0, and over the updates of 150 iterations."""
    folder = warmed / "logs/second/source"
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
    outcome = run("train_agents", warmed, *SECOND, *short, "evals.eval_interval=30", "name=spoiled", spoiled)
    assert outcome.code == 0, outcome.err
    assert curves_of(warmed / "logs/spoiled/source/pretraining")["pretraining/loss"] == [*range(2, 121, 2), 240]
    assert [path.name for path in (warmed / "logs/spoiled/source").glob("best-*.pt")] == ["best-000000000.pt"]


def test_killed_amid_it_and_continued(warmed: Path, tmp_path: Path) -> None:
    """In the offline part, and with replay and its priorities in the checkpoint."""
    shutil.copytree(warmed / "histories/first", tmp_path / "histories/first")
    shutil.copytree(warmed / "logs/first", tmp_path / "logs/first")
    for step in (60,):
        checkpoint = tmp_path / f"logs/second/source/last-{step:09d}.json"
        process = start("train_agents", tmp_path, *SECOND)
        while not checkpoint.exists() and process.poll() is None:
            time.sleep(0.002)
        process.kill()
        ended(process)
    outcome = run("train_agents", tmp_path, *SECOND)
    assert outcome.code == 0, outcome.err
    found, expected = (
        {
            name: value
            for name, value in results_of(root).items()
            if name.startswith(("histories/first", "histories/second", "logs/second/source"))
        }
        for root in (tmp_path, warmed)
    )
    assert found == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("source.offline_buffer_dir=nobody",), ["no histories in", "nobody"]),
        (("tasks.seed=1",), ["no histories of 2 of the 5 training tasks", "tasks.seed"]),
        (("env.max_episode_steps=5",), ["env.max_episode_steps=4", "has 5"]),
    ],
)
def test_histories_that_do_not_fit(warmed: Path, options: tuple[str, ...], said: list[str]) -> None:
    refusal = run("train_agents", warmed, *SECOND, "name=third", *options).refusal
    assert all(part in refusal for part in said), refusal
    assert not [file for file in files_of(warmed) if "third" in file]
