"""A tiny problem for the gradient loop: name the action of each of nine observations."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import torch
import torch.nn.functional as F
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import SessionLog
from torch import Tensor, nn

from icrl import extensions
from icrl.app.compose import load_config
from icrl.app.root import Config
from icrl.config.options import replace
from icrl.contracts import Batch
from icrl.runs import checkpoint
from icrl.runs.distributed import Ranks
from icrl.runs.evaluations import Evaluation, Evaluator
from icrl.runs.files import read_json
from icrl.training.fit import fit
from icrl.training.program import RunContext

CPU = torch.device("cpu")
SEED = 8  # gives a run whose best evaluation is an early one
CONFIG = load_config(
    [
        *("experiment=four_layers", "trainer.num_iterations=11", "trainer.mini_batch_size=8"),
        *("optimizer.learning_rate=0.05", "optimizer.weight_decay=0.01"),
        *("summaries.num_summaries=0", "summaries.summary_interval=1"),
        *("checkpoints.num_checkpoints=0", "checkpoints.checkpoint_interval=3"),
        *("evals.num_evals=0", "evals.eval_interval=2", "evals.async_eval=false"),
    ]
)


def config_of(**changes: dict[str, Any]) -> Config:
    """`CONFIG` with some options of a group changed: `trainer={"num_iterations": 4}`."""
    config = CONFIG
    if name := changes.get("optimizer", {}).get("name"):
        optimizer = load_config([f"optimizer={name}"]).optimizer
        config = replace(CONFIG, optimizer=replace(optimizer, learning_rate=CONFIG.optimizer.learning_rate))
    return replace(config, **{group: replace(getattr(config, group), **some) for group, some in changes.items()})


def model_of(seed: int, dropout: float = 0.4) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Embedding(9, 16), nn.Linear(16, 16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, 3))


def batch_at(update: int) -> Batch:
    obs = torch.randint(9, (8, 5), generator=torch.Generator().manual_seed(update + 100))
    action = obs * obs % 7 % 3
    reward, timestep, never = obs % 2, torch.arange(5).expand(8, 5), torch.zeros_like(obs)
    return Batch(obs, action, reward, obs, timestep, never, never, action, torch.ones(8, 5), reward.float())


class Naming:
    """Objective: name the action of every observation."""

    weights = {"naming": 1.0}

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        logits = self.logits(model, batch).flatten(0, 1)
        accuracy = (logits.argmax(-1) == batch.action.flatten()).float().mean()
        return {"naming": F.cross_entropy(logits, batch.action.flatten())}, {"accuracy": accuracy}

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch.obs)


def look(state: dict[str, Any]) -> Evaluation:
    """A score that goes up and down with the weights."""
    torch.rand(3)  # an evaluation that takes random numbers must not change the run
    score = math.sin(50 * sum(value.double().sum().item() for value in state["model"].values()))
    return Evaluation({"score": score}, score)


class WorkerHere:
    """Evaluation worker in this process, which answers at the second request."""

    def __init__(self, look: Callable[[Path], Evaluation]) -> None:
        self.look = look

    def give(self, sidecar: Path) -> None:
        self.sidecar, self.asked = sidecar, 0

    def answer(self, patience: float) -> Evaluation | None:
        self.asked += 1
        with torch.random.fork_rng():  # a process has generators of its own
            return self.look(self.sidecar) if self.asked > 1 else None

    def end(self, patience: float = 0.0) -> None: ...


def run(
    folder: Path,
    config: Config = CONFIG,
    model: nn.Module | None = None,
    batches: Callable[[int], Batch] = batch_at,
    look: Evaluator = look,
    ranks: Ranks | None = None,
) -> nn.Module:
    model = model or model_of(SEED)
    about = {"program": "train_gpt", "run": "f00d", "about": "toy"}
    fit(RunContext(config, folder, CPU, ranks or Ranks(), about, []), model, Naming(), batches, look)
    return model


def doing(act: Callable[[], None], at: int) -> Callable[[int], Batch]:
    """Batches; `act` is called before the batch of update `at`."""

    def batches(update: int) -> Batch:
        if update == at:
            act()
        return batch_at(update)

    return batches


def dying(at: int, error: type[BaseException] = KeyboardInterrupt) -> Callable[[int], Batch]:
    return doing(Mock(side_effect=error("mine")), at)


def curves(folder: Path) -> dict[str, list[tuple[int, str]]]:
    """Steps and values (as text, so that NaN equals NaN) of each curve, as TensorBoard shows them: a resumed run hides
    the points that the run before it wrote beyond its start."""
    found: dict[str, list[tuple[int, str]]] = {}
    for path in sorted(folder.glob("events.*"), key=lambda path: path.stat().st_mtime_ns):
        for event in EventFileLoader(str(path)).Load():
            if event.session_log.status == SessionLog.START:
                found = {tag: [point for point in points if point[0] < event.step] for tag, points in found.items()}
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "scalars":
                    found.setdefault(value.tag, []).append((event.step, repr(value.tensor.float_val[0])))
    return found


def events_of(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder), size_guidance={"histograms": 0, "tensors": 0}).Reload()


def values_of(folder: Path, tag: str) -> list[float]:
    return [float(value) for _, value in curves(folder)[tag]]


def left_in(folder: Path) -> dict[str, Any]:
    """Everything a run leaves, to the bit: the newest checkpoints, evaluations, curves with values."""
    found: dict[str, Any] = {"points": curves(folder)}
    for kind in ("last", "best", "crash", "pending"):
        newest = checkpoint.load_newest(folder, kind, CPU)
        found[kind] = newest and (newest[1]["step"], newest[1]["description"], plain(newest[0]))
    if (folder / "evaluations.json").exists():
        found["evaluations"] = read_json(folder / "evaluations.json")
        found["points of evaluations"] = curves(folder / "evals")
    return found


def plain(state: Any) -> Any:
    """Nested state in which `==` compares tensors bit for bit."""
    if isinstance(state, Tensor):
        return str(state.dtype), tuple(state.shape), state.numpy().tobytes()
    if isinstance(state, Mapping):
        return {key: plain(value) for key, value in state.items()}
    return [plain(value) for value in state] if isinstance(state, (list, tuple)) else state


def weights_of(folder: Path) -> dict[str, Tensor]:
    found = checkpoint.load_newest(folder, "last", CPU)
    assert found
    return found[0]["model"]


def steps_of(folder: Path, kind: str = "last") -> list[int]:
    return sorted(int(path.stem.rpartition("-")[2]) for path in folder.glob(f"{kind}-*.pt"))


def use_worker_here(monkeypatch: Any) -> None:
    if "async_evaluations" in extensions.NAMES:
        monkeypatch.setattr("icrl.extensions.async_evaluations.process.Worker", WorkerHere)


def assert_same(ours: Any, theirs: Any) -> None:
    """Nested tensors and numbers, bit for bit."""
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
