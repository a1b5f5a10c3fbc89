"""Stages two and three on the histories of two sources at once: what A2C left, and what Q-learning left."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import TINY, done, kill_late, refusal, results_of

from icrl.collection.collect import make_learners
from icrl.config.root import Config
from icrl.data.history_store import open_histories
from icrl.envs.core import MapView
from icrl.plots import walks
from icrl.plots.style import Frames
from icrl.plots.walks import Walk
from icrl.programs import evaluate
from icrl.runs.files import read_json

TABLE = tuple(option for option in TINY if option != "source.hidden_size=8")  # of a source without a network
MIXED = ("name=mixed", "histories=[one,two]", "data.weights=[3,1]")
UNEVALUATED = ("trainer.evaluate=false", "evaluation.checkpoint=last")


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


def test_checkpoints_say_which_histories_were_learned_from(mixed: Path) -> None:
    about = read_json(mixed / "logs/mixed/gpt/last-000000006.json")["description"]
    one, two = (open_histories(mixed / "histories" / name) for name in ("one", "two"))
    assert [store.manifest["config"]["source"]["name"] for store in (one, two)] == ["a2c", "q_learning"]
    assert about["histories"] == [{"name": "one", "sha256": one.checksum}, {"name": "two", "sha256": two.checksum}]
    assert about["config"]["data"]["weights"] == [3.0, 1.0]
    assert about["tasks"]["train"] == one.manifest["tasks"]["train"] == two.manifest["tasks"]["train"]


def test_a_continued_run_ends_with_the_same_bits_of_the_same_mixture(mixed: Path, root: Path) -> None:
    """The configured source says nothing of a mixture."""
    kill_late(root / "logs/mixed/gpt", 4)
    done("train_gpt", root, *MIXED)
    assert results_of(root) == results_of(mixed)
    said = done("train_gpt", root, *MIXED, "source=q_learning", "source.discount=0.5", preset=TABLE)
    assert "all 6 updates of mixed are done" in said
    for option, part in (("histories=[two,one]", "histories one (sha256"), ("data.weights=[1,3]", "[3.0, 1.0]")):
        message = refusal("train_gpt", root, *MIXED, option)
        assert f"{root}/logs/mixed/gpt was made with" in message and part in message, message


def test_agents_of_the_first_source_are_shown(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever source is configured."""
    shown: list[list[str]] = []
    lived: list[Config] = []

    def learners(config: Config, *others: Any) -> Any:
        lived.append(config)
        return make_learners(config, *others)

    def rows_of(rows: Sequence[tuple[str, Sequence[tuple[str, Walk]]]], view: MapView) -> Frames:
        shown.append([name for name, _ in rows])
        return np.zeros((1, 2, 2, 3), np.uint8)

    monkeypatch.setattr(walks, "make_learners", learners)
    monkeypatch.setattr(walks, "side_by_side", rows_of)
    monkeypatch.setattr(walks, "write_video", lambda path, frames, fps: None)
    other = ("source=q_learning", *MIXED, "name=other", *UNEVALUATED)
    done("train_gpt", root, *other, preset=TABLE)
    done("evaluate", root, *other, "evaluation.videos=true", preset=TABLE)
    assert shown == [["model", "A2C"]] * len(lived) and len(lived) > 1
    one = open_histories(root / "histories/one").manifest["config"]["source"]
    assert all(config.source.model_dump() == one for config in lived)
    curves = read_json(root / "logs/other/evaluation/results.json")["curves"]
    assert "A2C, training tasks, end of life" in curves
    shutil.rmtree(root / "histories")  # without videos, another world needs nothing of them
    done("evaluate", root, *other, "env.random_start=true", preset=TABLE)


def test_histories_with_too_few_episodes_are_refused_before_anything_is_played(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The curves of the source are those of the first: that the others are longer does not help."""
    done("train_agents", root, "name=short", "source.history_steps=24", "evaluation.num_episodes=2")
    done("train_gpt", root, "name=new", "histories=[short,two]", *UNEVALUATED)
    with monkeypatch.context() as patch:
        patch.setattr(evaluate.in_context, "play_episodes", lambda *_: pytest.fail("played"))
        message = refusal("evaluate", root, "name=new", "histories=[short,two]", *UNEVALUATED)
    assert "evaluation.num_episodes=3 needs 16 steps per row for the episodes of the source" in message
    assert f"{root}/histories/short has 12" in message
    turned = ("name=turned", "histories=[two,short]", *UNEVALUATED)
    done("train_gpt", root, *turned)
    done("evaluate", root, *turned)
