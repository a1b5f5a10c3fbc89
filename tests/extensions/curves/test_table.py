"""Tables of curves: they have what TensorBoard has, also after a kill."""

from pathlib import Path

import numpy as np
import pytest
import torch
from harness import done
from toy import events_of

from icrl.contracts import PipelineError
from icrl.extensions.curves.table import CSV, read_table
from icrl.runs.metrics import CurvesConfig, MetricLogger

Points = dict[str, list[tuple[int, float]]]
BOTH = CurvesConfig(writer=["tensorboard", "csv"])


def on_tensorboard(folder: Path) -> Points:
    events = events_of(folder)
    return {tag: [(one.step, one.value) for one in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def in_table(folder: Path) -> Points:
    assert (folder / CSV).read_text().startswith("step,tag,value\n")
    return {tag: [*zip(*map(np.ndarray.tolist, curve), strict=True)] for tag, curve in read_table(folder / CSV).items()}


def same(one: Points, other: Points) -> bool:
    """Equal to the digits of TensorBoard's float32."""
    pairs = {tag: (np.float32(points), np.float32(other.get(tag, []))) for tag, points in one.items()}
    return one.keys() == other.keys() and all(np.array_equal(*pair, equal_nan=True) for pair in pairs.values())


def test_the_table_has_the_points_of_tensorboard(tmp_path: Path) -> None:
    """With the names and numbers that are hard to write, and nothing of what is no number."""
    with MetricLogger(tmp_path / "gpt", 0, BOTH) as logger:
        for step in (1, 2, 30):
            logger.scalars("train", {"loss": 1 / step, 'odd, "name"': -1e-30 * step}, step)
            logger.scalars("update", {"far": np.float64(1e30), "none": float("nan")}, 1000 * step)
        logger.histograms({"weights": torch.ones(3)}, 30)
        logger.image("goals", np.zeros((4, 6, 3), np.uint8), 30)
        table = in_table(tmp_path / "gpt")  # is complete before it is flushed
        logger.flush()
        assert same(table, on_tensorboard(tmp_path / "gpt"))
    found = in_table(tmp_path / "gpt")
    assert found["train/loss"] == [(1, 1.0), (2, 0.5), (30, 1 / 30)]  # with all digits
    assert len(found) == 4 and same(found, on_tensorboard(tmp_path / "gpt"))
    with MetricLogger(tmp_path / "alone", 0, CurvesConfig(writer=["csv"])):
        assert not [*(tmp_path / "alone").iterdir()]


@pytest.mark.parametrize("at", [0, 3, 5, None])
@pytest.mark.parametrize("torn", ["", "6,train/lo", "6"])
def test_a_resumed_table_is_that_of_an_uninterrupted_run(tmp_path: Path, at: int | None, torn: str) -> None:
    """The run was killed at 5, perhaps amid a line, and resumes `at` a step; with None it appends."""
    first = 5 if at is None else at
    for resumed, value, steps in ((0, 1.0, range(1, 6)), (at, 2.0, range(first + 1, 8))):
        with MetricLogger(tmp_path, resumed, BOTH) as logger:
            for step in steps:
                logger.scalars("train", {"loss": value, "accuracy": step}, step)
        with (tmp_path / CSV).open("a") as file:
            file.write(torn)
    MetricLogger(tmp_path, 7, BOTH).close()
    assert in_table(tmp_path)["train/loss"] == [(step, 1.0 if step <= first else 2.0) for step in range(1, 8)]
    assert same(in_table(tmp_path), on_tensorboard(tmp_path))


def test_a_damaged_table_and_a_full_disk_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / CSV).write_text("step,tag,value\nfirst,train/loss,1\n")
    with pytest.raises(PipelineError, match=r"scalars\.csv is damaged .* remove it"):
        MetricLogger(tmp_path, 3, BOTH)
    (tmp_path / CSV).unlink()
    logger = MetricLogger(tmp_path, 0, CurvesConfig(writer=["csv"]))
    (tmp_path / CSV).symlink_to("/dev/full")
    with pytest.raises(PipelineError, match=f"cannot write curves in {tmp_path}: No space left"):
        logger.scalars("train", {"loss": 1.0}, 1)


def test_every_table_of_a_run_has_what_tensorboard_shows(root: Path) -> None:
    """Those of training, of evaluations beside it and of each policy; no point is there twice."""
    for stage in ("train_gpt", "evaluate"):
        done(stage, root, "summaries.writer=[tensorboard,csv]", "name=new", "run=new", "histories=tiny")
    folders = {path.parent for path in root.rglob(CSV)}
    named = {str(folder.relative_to(root / "logs/new")) for folder in folders}
    assert {"gpt", "gpt/evals", "evaluation/random"} <= named
    for folder in folders:
        found = in_table(folder)
        assert found and same(found, on_tensorboard(folder)), folder
        assert all(len({step for step, _ in points}) == len(points) for points in found.values()), folder
