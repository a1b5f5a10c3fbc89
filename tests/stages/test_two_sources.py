"""Histories of others: stages two and three on those of A2C and Q-learning at once, and a source agent that starts from
those of another, goes on by itself, and records that as a new history; one that trains on after its last env step."""

import shutil
from pathlib import Path

import pytest
from harness import TINY, curves_of, done, kill_late, refusal, results_of
from installed import needs

from icrl.data.history_store import open_histories
from icrl.evaluation import in_context
from icrl.runs.files import read_json

TABLE = tuple(option for option in TINY if option != "source.hidden_size=8")  # of a source without a network
MIXED = ("name=mixed", "histories=[one,two]", "data.weights=[3,1]")
UNEVALUATED = ("trainer.evaluate=false", "evaluation.checkpoint=last")
evaluated = needs("source_evaluations")
pytestmark = needs("value_sources")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a finished run of stage two on both histories; only to be read."""
    root = tmp_path_factory.mktemp("mixed")
    done("train_agents", root, "name=one")
    done("train_agents", root, "source=q_learning", "source.num_learners=2", "name=two", preset=TABLE)
    said = done("train_gpt", root, *MIXED)
    assert f"rows of {root}/histories/one, drawn with probability 0.750" in said
    assert f"rows of {root}/histories/two, drawn with probability 0.250" in said
    return root


@pytest.fixture
def root(mixed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(mixed, tmp_path / "root"))


def test_a_continued_run_ends_with_the_same_bits_of_the_same_mixture(mixed, root):
    """The configured source says nothing of a mixture."""
    kill_late(root / "logs/mixed/gpt", 4)
    done("train_gpt", root, *MIXED)
    assert results_of(root) == results_of(mixed)
    said = done("train_gpt", root, *MIXED, "source=q_learning", "source.discount=0.5", preset=TABLE)
    assert "all 6 updates of mixed are done" in said
    for option, part in (("histories=[two,one]", "histories one (sha256"), ("data.weights=[1,3]", "[3.0, 1.0]")):
        message = refusal("train_gpt", root, *MIXED, option)
        assert f"{root}/logs/mixed/gpt was made with" in message and part in message, message


def test_histories_with_too_few_episodes_are_refused_before_anything_is_played(root, monkeypatch):
    """The curves of the source are those of the first: that the others are longer does not help."""
    done("train_agents", root, "name=short", "source.history_steps=24", "evaluation.num_episodes=2")
    done("train_gpt", root, "name=new", "histories=[short,two]", *UNEVALUATED)
    with monkeypatch.context() as patch:
        patch.setattr(in_context, "play_episodes", lambda *_: pytest.fail("played"))
        message = refusal("evaluate", root, "name=new", "histories=[short,two]", *UNEVALUATED)
    assert "evaluation.num_episodes=3 needs 16 steps per row for the episodes of the source" in message
    assert f"{root}/histories/short has 12" in message
    turned = ("name=turned", "histories=[two,short]", *UNEVALUATED)
    done("train_gpt", root, *turned)
    done("evaluate", root, *turned)


LIFE = ("source.num_env_steps=300", "source.history_steps=300", "source.unroll_length=1", "source.evaluate=false")
FIRST = ("source=q_learning", "name=first", *LIFE)
SECOND = (
    *("source=dqn", "name=second", *LIFE, "source.initial_collect_steps=40", "source.replay_buffer_length=60"),
    *("source.mini_batch_length=2", "source.mini_batch_size=4", "source.priority_replay=true"),
    *("source.offline_buffer_dir=first", "source.rl_train_after_update_steps=100"),
    *("source.learning_rate=0.02", "source.epsilon=0.1", "checkpoints.checkpoint_interval=60"),
    *("source.evaluate=true", "evals.eval_interval=50", "summaries.summary_interval=40", "checkpoints.keep_last=9"),
)


@pytest.fixture(scope="module")
def warmed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("warmed")
    done("train_agents", root, *FIRST, preset=TABLE)
    done("train_agents", root, *SECOND)
    return root


@evaluated
def test_it_begins_with_what_it_learned_from_others(warmed):
    """The first histories begin clueless; the new ones, recorded from the first env step on, begin well. Nothing is
    played before; it is evaluated at env step 0, and shown over the updates of 100 iterations."""
    columns = [open_histories(warmed / "histories" / name).columns for name in ("first", "second")]
    assert {one["obs"].shape[1] for one in columns} == {150}
    first, second = (one["reward"][:, :40].mean() for one in columns)
    assert second > 1.5 * first
    folder = warmed / "logs/second/source"
    assert read_json(max(folder.glob("last-*.json")))["step"] == 100 + 150  # iterations: those without env steps on top
    found = read_json(folder / "evaluations.json")["evaluations"]
    assert [evaluation["step"] for evaluation in found] == [0, 100, 200, 300]
    assert found[0]["score"] > 0.5  # chance: 0.23
    curves = curves_of(folder / "pretraining")
    shown = ("loss", "td_error", "value", "epsilon", "learning_rate", "gradient_norm")
    assert set(curves) == {f"pretraining/{name}" for name in shown}
    assert curves["pretraining/loss"] == [40, 80]
    assert not (warmed / "logs/first/source/pretraining").exists()


@evaluated
def test_agents_may_be_best_before_they_play(warmed):
    """Where they act at random from their first env step on."""
    spoiled = "source.epsilon={kind: linear, progress: iterations, points: [[0, 0], [100, 0], [101, 1]]}"
    short = ("source.num_env_steps=120", "source.history_steps=120", "source.num_updates_per_train_iter=2")
    done("train_agents", warmed, *SECOND, *short, "evals.eval_interval=30", "name=spoiled", spoiled)
    folder = warmed / "logs/spoiled/source"
    assert curves_of(folder / "pretraining")["pretraining/loss"] == [80, 160]
    assert [path.name for path in folder.glob("best-*.pt")] == ["best-000000000.pt"]


@evaluated
@pytest.mark.parametrize("step", [60, 180])
def test_killed_amid_it_and_continued(warmed, tmp_path, step):
    """In the offline part, and with replay and its priorities in the checkpoint."""
    parts = ("histories/first", "histories/second", "logs/second/source")
    for part in parts:
        shutil.copytree(warmed / part, tmp_path / part)
    kill_late(tmp_path / "logs/second/source", step)
    done("train_agents", tmp_path, *SECOND)
    expected = {name: value for name, value in results_of(warmed).items() if name.startswith(parts)}
    assert {name: value for name, value in results_of(tmp_path).items() if name.startswith(parts)} == expected


ON = (
    *("source=dqn", "name=on", *LIFE, "source.initial_collect_steps=40", "source.replay_buffer_length=60"),
    *("source.mini_batch_size=4", "source.num_iterations=250", "checkpoints.checkpoint_interval=50"),
    *("checkpoints.keep_last=9", "source.evaluate=true", "evals.eval_interval=50", "summaries.summary_interval=25"),
)


@evaluated
def test_agents_train_on_from_the_replay(tmp_path):
    """The 300 env steps of each learner take 150 iterations. Updates and evaluations of 100 more are shown over the
    env steps that these would have made. A killed run ends with the same bits."""
    done("train_agents", tmp_path / "whole", *ON)
    folder = tmp_path / "whole/logs/on/source"
    assert open_histories(tmp_path / "whole/histories/on").columns["obs"].shape == (10, 150)
    saved = read_json(max(folder.glob("last-*.json")))
    assert saved["step"] == 250 and read_json(folder / "finished.json")
    found = read_json(folder / "evaluations.json")["evaluations"]
    assert [evaluation["step"] for evaluation in found] == [*range(0, 501, 100)]
    curves = curves_of(folder)
    assert curves["source/return/mean"] == [*range(50, 301, 50)] and curves["update/loss"] == [*range(50, 501, 50)]
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    kill_late(tmp_path / "killed/logs/on/source", 200)
    done("train_agents", tmp_path / "killed", *ON)
    assert results_of(tmp_path / "killed") == results_of(tmp_path / "whole")
