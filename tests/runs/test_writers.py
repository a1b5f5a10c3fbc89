"""Writers of curves: what TensorBoard has is in the table and on the services too, also after a kill."""

import csv
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness import TINY, done, files_of, kill_late, run
from toy import events_of

from icrl.config.compose import load_config
from icrl.config.paths import PROJECT
from icrl.contracts import ConfigError, PipelineError
from icrl.runs.metrics import CurvesConfig, MetricLogger, check_writers
from icrl.runs.writers import CSV

Points = dict[str, list[tuple[int, float]]]
BOTH = CurvesConfig(writer=["tensorboard", "csv"])


def on_tensorboard(folder: Path) -> Points:
    events = events_of(folder)
    return {tag: [(one.step, one.value) for one in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def in_table(folder: Path) -> Points:
    points: Points = {}
    with (folder / CSV).open(newline="") as file:
        for row in csv.DictReader(file):
            assert row.keys() == {"step", "tag", "value"}
            points.setdefault(row["tag"], []).append((int(row["step"]), float(row["value"])))
    return points


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
        logger.describe({"git": "revision"}, CurvesConfig())
        logger.bands("agents", ["train/loss"])
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


def test_a_killed_run_has_the_tables_of_an_uninterrupted_one(tmp_path: Path) -> None:
    """Those of the three stages, of evaluations beside training and of each policy; each table has what TensorBoard
    shows, and no point twice."""
    writers = "summaries.writer=[tensorboard,csv]"
    for stage in ("train_agents", "train_gpt", "evaluate"):
        done(stage, tmp_path / "whole", writers)
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    for stage, folder in (("train_agents", "source"), ("train_gpt", "gpt")):
        kill_late(tmp_path / "killed/logs/tiny" / folder, 4)
        done(stage, tmp_path / "killed", writers)
    tables = sorted(path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob(CSV))
    folders = {str(path.parent.relative_to("logs/tiny")) for path in tables}
    assert {"source", "source/evals", "gpt", "gpt/evals", "evaluation/random"} <= folders
    for path in tables:
        found = in_table((tmp_path / "killed" / path).parent)
        assert found == in_table((tmp_path / "whole" / path).parent) and found, path
        assert same(found, on_tensorboard((tmp_path / "killed" / path).parent)), path
        assert all(len({step for step, _ in points}) == len(points) for points in found.values()), path


@pytest.mark.parametrize(("name", "part"), [("wandb", "wandb.sdk"), ("mlflow", "mlflow.tracking")])
def test_an_absent_library_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, part: str
) -> None:
    monkeypatch.setitem(sys.modules, part, None)
    how = f'pip install "in-context-rl[{name}]"'
    for stage in ("train_agents", "train_gpt", "evaluate", "train_ilql", "pipeline"):
        refused = run(stage, tmp_path, f"summaries.writer=[csv,{name}]").refusal
        assert refused.startswith(f"summaries.writer={name} needs the package {name}") and how in refused
    assert not files_of(tmp_path)
    check_writers(BOTH)


@pytest.mark.parametrize("given", ["[]", "tensorbord", "[csv,board]"])
def test_writers_that_do_not_exist_are_refused(given: str) -> None:
    with pytest.raises(ConfigError, match=r"summaries\.writer.*tensorboard, csv, wandb, mlflow"):
        load_config([*TINY, f"summaries.writer={given}"])


# ---- services: with their own libraries, without a network

SESSION = """
import os, signal, sys
from pathlib import Path
import numpy as np, torch
from icrl.runs.metrics import CurvesConfig, MetricLogger
folder, writer, done, last, kill = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
logger = MetricLogger(folder, done, CurvesConfig(writer=[writer], num_summaries=7))
logger.describe({"git": "revision `abc`"}, CurvesConfig(num_summaries=7 + done, flush_secs=1))
for step in range(done + 1, last + 1):
    logger.scalars("train", {"loss": 1 / step, "nan": float("nan")}, step)
    logger.scalars("train", {"accuracy": step}, 10 * step)
logger.histograms({"weights": torch.arange(3.0)}, last)
logger.image("goals", np.zeros((4, 6, 3), np.uint8), last)
logger.flush()
if kill:
    os.kill(os.getpid(), signal.SIGKILL)
logger.close()
"""
LOSSES = [(step, 1 / step) for step in range(1, 9)]


def sessions(folder: Path, writer: str) -> list[str]:
    """Identities of the run in three sessions: one that is killed at 6, one that resumes from 4 and ends at 8, and one
    that starts anew."""
    ids = []
    for begin, last, kill in ((0, 6, 1), (4, 8, 0), (0, 2, 0)):
        environs = {"PYTHONPATH": str(PROJECT / "src"), "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
        command = [sys.executable, "-c", SESSION, str(folder), writer, str(begin), str(last), str(kill)]
        ended = subprocess.run(command, env=os.environ | environs, capture_output=True, text=True, check=False)
        assert ended.returncode == (-signal.SIGKILL if kill else 0), ended.stderr
        ids.append(json.loads((folder / f"{writer}.json").read_text())["id"])
    return ids


def test_mlflow_continues_the_run(tmp_path: Path) -> None:
    mlflow: Any = pytest.importorskip("mlflow")
    folder = tmp_path / "logs" / "name" / "gpt"
    first, resumed, anew = sessions(folder, "mlflow")
    assert first == resumed != anew
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/logs/mlflow.db")
    found = {one.info.run_id: one for one in client.search_runs([client.get_experiment_by_name("icrl").experiment_id])}
    assert found.keys() == {first, anew}
    assert (found[first].info.run_name, found[first].info.status) == ("name/gpt", "FINISHED")
    assert [(one.step, one.value) for one in client.get_metric_history(first, "train/loss")] == LOSSES
    assert [one.step for one in client.get_metric_history(first, "train/accuracy")] == [*range(10, 81, 10)]
    assert [one.step for one in client.get_metric_history(anew, "train/loss")] == [1, 2]
    assert found[first].data.params["num_summaries"] == "7"  # of its first session
    assert {one.path for one in client.list_artifacts(first)} == {"git.md", "goals.png"}


def records(path: Path) -> Iterator[Any]:
    """Records of a file of Weights & Biases: blocks of 32 KiB, with 7 bytes before the file and each part."""
    protocol: Any = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    content, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        size, kind = struct.unpack_from("<HB", content, at + 4)
        whole, at = whole + content[at + 7 : at + 7 + size], at + 7 + size
        if kind in (1, 4):  # whole, or the last part
            record = protocol.Record()
            record.ParseFromString(whole)
            whole = b""
            yield record


def test_wandb_continues_the_run(tmp_path: Path) -> None:
    """Sessions without a network are files, which `wandb sync` joins by the identity of the run. What the killed one
    may have lost is in the next one again."""
    pytest.importorskip("wandb")
    folder = tmp_path / "logs" / "name" / "gpt"
    first, resumed, anew = sessions(folder, "wandb")
    assert first == resumed != anew
    rows: dict[str, dict[int, float]] = {first: {}, anew: {}}
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        found = [*records(path)]
        runs = [one.run for one in found if one.WhichOneof("record_type") == "run"]
        if not runs:  # the session was killed before its file had any
            continue
        (own,) = runs
        assert (own.display_name, own.run_group, own.project) == ("name/gpt", "name", "icrl")
        for one in found:
            if one.WhichOneof("record_type") == "history":
                row = {"/".join(item.nested_key) or item.key: item.value_json for item in one.history.item}
                if "train/loss" in row:
                    rows[own.run_id][int(row["step"])] = json.loads(row["train/loss"])
    assert rows == {first: dict(LOSSES), anew: dict(LOSSES[:2])}
