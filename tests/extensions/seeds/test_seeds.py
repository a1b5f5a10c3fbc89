"""Several seeds as one program: each run is as if it was trained alone, also after an interruption."""

import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

import harness
import pytest
import torch
from harness import TINY, files_of, kill_late, results_of
from installed import needs
from toy import values_of

from icrl.envs.rooms import DarkRoom
from icrl.extensions.seeds.stack import Stack
from icrl.runs import checkpoint
from icrl.runs.files import read_json

PLAIN = ("model.residual_dropout=0", "model.attention_dropout=0", "trainer.gradient_accumulation_steps=1")
PLAIN += ("device.amp_dtype=none", "evals.async_eval=false", "checkpoints.keep_last=3", "histories=tiny")
TOGETHER, CLIPPED = ("name=many", "seeds=[4,0,7]"), "optimizer.max_gradient_norm=0.1"
go = partial(harness.done, preset=(*TINY, *PLAIN))
refusal = partial(harness.refusal, preset=(*TINY, *PLAIN))


@pytest.fixture(scope="module")
def histories(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Root with histories alone; only to be read."""
    root = tmp_path_factory.mktemp("histories")
    shutil.copytree(finished / "histories", root / "histories")
    return root


@pytest.fixture(scope="module")
def stacked(histories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Root with three finished runs that were trained as one program; only to be read."""
    root = Path(shutil.copytree(histories, tmp_path_factory.mktemp("stacked") / "root"))
    go("train_seeds", root, *TOGETHER)
    return root


def newest(root: Path, name: str) -> dict[str, Any]:
    found = checkpoint.load_newest(root / "logs" / name / "gpt", "last", torch.device("cpu"))
    assert found is not None
    return found[0]


def assert_close(one: Any, two: Any, where: str = "", tolerance: float = 1e-5) -> None:
    """Equal but for rounding, all the way down."""
    if isinstance(one, torch.Tensor):
        assert one.dtype == two.dtype and torch.allclose(one, two, rtol=1e-3, atol=tolerance), where
    elif isinstance(one, dict):
        assert one.keys() == two.keys(), where
        for key in one:
            assert_close(one[key], two[key], f"{where}/{key}", tolerance)
    else:
        assert one == two, where


@pytest.mark.parametrize(
    "options",
    [
        ("optimizer=muon", "model.tokens=interleaved", "model.position=rope"),
        pytest.param(
            ("optimizer=sgd", "model.tokens=cross", "model.num_layers=2", "objective=dpt", CLIPPED),
            marks=needs("optimizers"),
        ),
        ("device.amp_dtype=bfloat16", "optimizer=adam", "objective.weighting=improvement"),
    ],
)
def test_each_model_is_as_if_trained_alone(histories: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    """The model and the state of its optimizer, in a file as large as alone, which a run alone continues from."""
    root = Path(shutil.copytree(histories, tmp_path / "root"))
    more = ("trainer.evaluate=false", "evaluation.checkpoint=last", *options)
    go("train_seeds", root, *TOGETHER, *more)
    go("train_gpt", root, "name=alone", "seed=7", *more)
    one, two = newest(root, "many-seed7"), newest(root, "alone")
    coarse = 2e-3 if "device.amp_dtype=bfloat16" in options else 1e-5
    assert_close(one["model"], two["model"], tolerance=coarse)
    assert_close(one["updater"]["optimizer"], two["updater"]["optimizer"], tolerance=coarse)
    other = newest(root, "many-seed4")["model"]
    assert not all(torch.allclose(one["model"][name], other[name], atol=1e-3) for name in other)
    each = [max((root / "logs" / name / "gpt").glob("last-*.pt")).stat().st_size for name in ("many-seed7", "alone")]
    assert each[0] == pytest.approx(each[1], rel=0.05)
    kill_late(root / "logs/many-seed7/gpt", 4)
    go("train_gpt", root, "name=many-seed7", "seed=7", *more)
    assert_close(newest(root, "many-seed7")["model"], two["model"], tolerance=coarse)


def test_models_and_evaluations_during_training_and_after_it_are_those_of_each_run(
    stacked: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(stacked, tmp_path / "root"))
    go("train_gpt", root, "name=alone", "seed=0")
    assert_close(newest(root, "many-seed0")["model"], newest(root, "alone")["model"])
    one, two = (read_json(root / "logs" / name / "gpt/evaluations.json") for name in ("many-seed0", "alone"))
    assert [entry["step"] for entry in one["evaluations"]] == [entry["step"] for entry in two["evaluations"]]
    together, alone = (values_of(root / "logs" / name / "gpt", "train/nll") for name in ("many-seed0", "alone"))
    assert together == pytest.approx(alone, rel=1e-3)
    go("evaluate", root, "name=many-seed0", "seed=0")
    assert read_json(root / "logs/many-seed0/evaluation/results.json")["final"]


@pytest.mark.parametrize("steps", [(2, 2, 2), (4, 0, 6)], ids=str)
def test_killed_runs_continue_to_the_same_models(stacked: Path, tmp_path: Path, steps: tuple[int, ...]) -> None:
    """To the bit if all were killed at the same checkpoint; else those that are behind catch up first."""
    root = Path(shutil.copytree(stacked, tmp_path / "root"))
    for seed, step in zip((4, 0, 7), steps, strict=True):
        kill_late(root / f"logs/many-seed{seed}/gpt", step)
    go("train_seeds", root, *TOGETHER)
    if len({*steps}) == 1:
        assert results_of(root) == results_of(stacked)
    for seed in (4, 0, 7):
        assert_close(newest(root, f"many-seed{seed}")["model"], newest(stacked, f"many-seed{seed}")["model"])
    before = files_of(root)
    assert go("train_seeds", root, *TOGETHER).count("all 6 updates of many-seed") == 3
    assert files_of(root) == before


def test_a_crash_ends_all_runs_and_a_signal_stops_them_with_a_checkpoint(
    stacked: Path, histories: Path, tmp_path: Path, monkeypatch
) -> None:
    root = Path(shutil.copytree(histories, tmp_path / "root"))
    update, handler = Stack.update, signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(Stack, "update", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        harness.run("train_seeds", root, *TOGETHER, preset=(*TINY, *PLAIN))
    assert len([*root.glob("logs/many-seed*/gpt/crash-*.pt")]) == 3

    def signalled(self: Stack, batches: Any, clock: Any) -> Any:
        if clock.updates == 2:
            signal.raise_signal(signal.SIGTERM)
        return update(self, batches, clock)

    monkeypatch.setattr(Stack, "update", signalled)
    assert harness.run("train_seeds", root, *TOGETHER, preset=(*TINY, *PLAIN)).code
    assert [newest(root, f"many-seed{seed}")["step"] for seed in (4, 0, 7)] == [3, 3, 3]
    assert signal.getsignal(signal.SIGTERM) is handler
    monkeypatch.undo()
    go("train_seeds", root, *TOGETHER)
    assert_close(newest(root, "many-seed0")["model"], newest(stacked, "many-seed0")["model"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("seeds=[1,1]",), "seeds=[1, 1]: must be one seed, or several different ones"),
        (("seed=7",), "seed=7: each model has its own seed, from seeds=[4, 0, 7]"),
        (("model.residual_dropout=0.1",), "seeds=[4, 0, 7] needs a model without dropout"),
        (("trainer.gradient_accumulation_steps=2",), "needs trainer.gradient_accumulation_steps=1"),
        pytest.param(
            ("model.trunk=gru", "model.position=none"), "cannot be trained as one program", marks=needs("recurrent")
        ),
        (("model.obs_encoding=framed",), "needs an encoding other than model.obs_encoding=framed"),
        (("model.position=learned",), "needs a model.position without parameters"),
        pytest.param(("model.head=action_vectors",), "needs a model.head of the", marks=needs("action_vectors")),
    ],
)
def test_what_cannot_be_trained_as_one_is_refused(histories: Path, monkeypatch, options, message: str) -> None:
    """Before any work; the world that is asked for its spaces is closed, because others may have processes."""
    closed = list[bool]()
    monkeypatch.setattr(DarkRoom, "close", lambda _: closed.append(True))
    assert message in refusal("train_seeds", histories, *TOGETHER, *options)
    assert closed == [True]
