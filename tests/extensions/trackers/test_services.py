"""Curves on services: with their own libraries, without a network."""

import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import files_of, run

from icrl.contracts import PipelineError, Stopped
from icrl.runs.files import PROJECT
from icrl.runs.metrics import CurvesConfig, MetricLogger


@pytest.mark.parametrize(("name", "part"), [("wandb", "wandb.sdk"), ("mlflow", "mlflow.tracking")])
def test_an_absent_library_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, part: str
) -> None:
    monkeypatch.setitem(sys.modules, part, None)
    how = f'pip install "in-context-rl[{name}]"'
    for stage in ("train_agents", "train_gpt", "evaluate", "pipeline"):
        refused = run(stage, tmp_path, f"summaries.writer=[tensorboard,{name}]").refusal
        assert refused.startswith(f"summaries.writer={name} needs the package {name}") and how in refused
    assert not files_of(tmp_path)


SESSION = """
import os, signal, sys
from pathlib import Path
import numpy as np, torch
from icrl.runs.metrics import CurvesConfig, MetricLogger
folder, writer, done, last, kill = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
logger = MetricLogger(folder, done, CurvesConfig(writer=[writer], num_summaries=7))
logger.describe(CurvesConfig(num_summaries=7 + done))
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
    assert {one.path for one in client.list_artifacts(first)} == {"goals.png"}


def test_mlflow_shows_how_a_run_ended(tmp_path: Path) -> None:
    mlflow: Any = pytest.importorskip("mlflow")
    for number, error in enumerate((PipelineError("not finite"), Stopped("SIGTERM"))):
        folder = tmp_path / "logs" / str(number)
        with pytest.raises(type(error)), MetricLogger(folder, 0, CurvesConfig(writer=["mlflow"])):
            raise error
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/logs/mlflow.db")
    found = client.search_runs([client.get_experiment_by_name("icrl").experiment_id])
    assert {one.info.run_name: one.info.status for one in found} == {"0": "FAILED", "1": "KILLED"}


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
