"""Stages two and three on the histories of two sources at once: what A2C left, and what Q-learning left."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import TINY, Outcome, files_of, results_of, run
from torch import Tensor

from icrl.collection.collect import make_learners
from icrl.config.root import Config
from icrl.contracts import Batch
from icrl.data.history_store import open_histories
from icrl.data.windows import Mixture, Windows
from icrl.envs.core import MapView
from icrl.plots import walks
from icrl.plots.style import Frames
from icrl.plots.walks import Walk
from icrl.programs import evaluate
from icrl.training import program

SOURCE = tuple(option for option in TINY if option != "source.hidden_size=8")  # of a table without a network
MIXED = ("name=mixed", "histories=[one,two]", "data.weights=[3,1]")
UNEVALUATED = ("trainer.evaluate=false", "evaluation.checkpoint=last")


def done(stage: str, root: Path, *options: str) -> Outcome:
    outcome = run(stage, root, *options)
    assert outcome.code == 0, outcome
    return outcome


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a finished run of stage two on both histories; only to be read."""
    root = tmp_path_factory.mktemp("mixed")
    done("train_agents", root, "name=one")
    other = run("train_agents", root, "source=q_learning", "source.num_learners=2", "name=two", preset=SOURCE)
    assert other.code == 0, other
    said = done("train_gpt", root, *MIXED).out
    assert f"rows of {root}/histories/one, drawn with probability 0.750" in said
    assert f"rows of {root}/histories/two, drawn with probability 0.250" in said
    return root


@pytest.fixture
def root(mixed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(mixed, tmp_path / "root"))


def test_checkpoints_say_which_histories_were_learned_from(mixed: Path) -> None:
    about = json.loads((mixed / "logs/mixed/gpt/last-000000006.json").read_text())["description"]
    one, two = (open_histories(mixed / "histories" / name) for name in ("one", "two"))
    assert [store.manifest["config"]["source"]["name"] for store in (one, two)] == ["a2c", "q_learning"]
    assert about["histories"] == [{"name": "one", "sha256": one.checksum}, {"name": "two", "sha256": two.checksum}]
    assert about["config"]["data"]["weights"] == [3.0, 1.0]
    assert about["tasks"]["train"] == one.manifest["tasks"]["train"] == two.manifest["tasks"]["train"]


def test_both_histories_are_in_the_batches(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the windows that are gathered from each, three of four are taken from the first."""
    gathered: list[Batch] = []
    taken: list[Batch] = []

    class Gathered(Windows):
        def at(self, window: Tensor) -> Batch:
            gathered.append(super().at(window))
            return gathered[-1]

    class Taken(Mixture):
        def batch(self, seed: int, t: int, size: int, rank: int = 0, num_ranks: int = 1) -> Batch:
            taken.append(super().batch(seed, t, size, rank, num_ranks))
            return taken[-1]

    monkeypatch.setattr(program, "Windows", Gathered)
    monkeypatch.setattr(program, "Mixture", Taken)
    done("train_gpt", root, *MIXED, "name=new", "trainer.mini_batch_size=200", *UNEVALUATED)
    assert len(taken) == 6 and len(gathered) == 12
    counts = [0, 0]
    for t, batch in enumerate(taken):
        for lane in range(200):
            sources = [
                all(column[lane].equal(own[lane]) for column, own in zip(batch, gathered[2 * t + store], strict=True))
                for store in range(2)
            ]
            assert any(sources)
            counts[sources.index(True)] += sum(sources) == 1  # few windows of both are alike
    assert sum(counts) > 1000 and abs(counts[0] / sum(counts) - 0.75) < 0.06


def test_a_continued_run_ends_with_the_same_bits(mixed: Path, root: Path) -> None:
    folder = root / "logs/mixed/gpt"
    for file in (folder / "finished.json", *folder.glob("last-000000006.*")):
        file.unlink()
    done("train_gpt", root, *MIXED)
    assert results_of(root) == results_of(mixed)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("histories=[two,one]",), ["made with histories one (sha256 ", "has two (sha256 "]),
        (("histories=one", "data.weights=[]"), ["made with data.weights=[3.0, 1.0]"]),
        (("data.weights=[1,3]",), ["made with data.weights=[3.0, 1.0]", "has [1.0, 3.0]"]),
    ],
    ids=["order", "one", "weights"],
)
def test_a_run_goes_on_with_no_other_mixture(mixed: Path, options: tuple[str, ...], parts: list[str]) -> None:
    before = files_of(mixed)
    message = run("train_gpt", mixed, *MIXED, *options).refusal
    assert all(part in message for part in [f"{mixed}/logs/mixed/gpt was", *parts]), message
    assert "or another name=" in message
    assert files_of(mixed) == before


def test_the_source_of_the_configuration_says_nothing_of_a_mixture(mixed: Path) -> None:
    outcome = run("train_gpt", mixed, *MIXED, "source=q_learning", "source.discount=0.5", preset=SOURCE)
    assert outcome.code == 0 and "all 6 updates of mixed are done" in outcome.out, outcome


def test_stores_with_other_training_tasks_are_refused(root: Path) -> None:
    done("train_agents", root, "name=other", "tasks.seed=1")
    before = files_of(root)
    message = run("train_gpt", root, "name=new", "histories=[one,other]").refusal
    assert f"{root}/histories/other was made with tasks.seed=1, but this configuration has 0" in message
    assert files_of(root) == before


def test_agents_of_the_first_source_are_shown(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever source is configured, in the same world and in another."""
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
    assert run("train_gpt", root, *other, preset=SOURCE).code == 0
    for world in ("env.max_episode_steps=4",):
        outcome = run("evaluate", root, *other, world, "evaluation.videos=true", preset=SOURCE)
        assert outcome.code == 0, outcome
    assert shown == [["model", "A2C"]] * len(lived) and len(lived) > 1
    one = open_histories(root / "histories/one").manifest["config"]["source"]
    assert all(config.source.model_dump() == one for config in lived)
    curves = json.loads((root / "logs/other/evaluation/results.json").read_text())["curves"]
    assert "A2C, training tasks, end of life" in curves
    shutil.rmtree(root / "histories")  # without videos, another world needs nothing of them
    assert run("evaluate", root, *other, "env.random_start=true", preset=SOURCE).code == 0


def test_histories_with_too_few_episodes_are_refused_before_anything_is_played(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The curves of the source are those of the first: that the others are longer does not help."""
    done("train_agents", root, "name=short", "source.history_steps=24", "evaluation.num_episodes=2")
    mixed = ("name=new", "histories=[short,two]", *UNEVALUATED)
    done("train_gpt", root, *mixed)

    def never(*_: object) -> None:
        raise AssertionError("played")

    monkeypatch.setattr(evaluate.in_context, "play_episodes", never)
    message = run("evaluate", root, *mixed).refusal
    needed = (
        f"evaluation.num_episodes=3 needs 16 steps per row for the episodes of the source, but {root}/histories/short"
    )
    assert f"{needed} has 12" in message
    assert [path.name for path in (root / "logs/new").iterdir()] == ["gpt"]
    monkeypatch.undo()
    done("evaluate", root, *mixed, "evaluation.num_episodes=2")
    turned = ("name=turned", "histories=[two,short]", *UNEVALUATED)
    done("train_gpt", root, *turned)
    done("evaluate", root, *turned)
