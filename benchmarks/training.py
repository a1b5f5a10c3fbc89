"""Updates per second of stage two: in one process, with evaluations beside it, and data parallel in two processes.

python -m benchmarks.training

Each alternative is a run on the same histories with one thread per process. Its speed is measured between two of its
TensorBoard points, so that start and end do not count. The mean loss of its last points is printed beside it.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from benchmarks.measure import Report
from icrl.runs.files import PROJECT

UPDATES, POINTS, SKIPPED, ROUNDS = 120, 12, 2, 3
BASELINE = "one process"
PYTHON = [sys.executable, "-m"]
TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]
RUN = ["src.train_gpt", f"trainer.num_iterations={UPDATES}", f"summaries.num_summaries={POINTS}", "num_threads=1"]
ALONE = ["trainer.evaluate=false", "evaluation.checkpoint=last"]
BESIDE = ["evals.num_evals=0", "evals.eval_interval=60", "evals.async_eval=true"]  # one after the other
WAYS = {
    BASELINE: [*PYTHON, *RUN, *ALONE],
    "one process, always evaluating beside it": [*PYTHON, *RUN, *BESIDE],
    "torchrun, two processes": [*PYTHON, *TORCHRUN, *RUN, *ALONE],
}


def measured(command: list[str], root: Path) -> tuple[float, float]:
    """Updates per second and final loss of a run of stage two."""
    logs = root / "logs/speed"
    shutil.rmtree(logs, ignore_errors=True)
    run([*command, "name=speed", f"root={root}", "histories=speed"])
    points = EventAccumulator(str(logs / "gpt")).Reload().Scalars("train/loss")
    first, *_, last = points[SKIPPED:]
    loss = statistics.mean(point.value for point in points[-SKIPPED:])
    return (last.step - first.step) / (last.wall_time - first.wall_time), loss


def run(command: list[str]) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=PROJECT, env=environment, check=True, capture_output=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        run([*PYTHON, "src.train_agents", "name=speed", f"root={root}", "source.videos_per_task=0"])
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
        for _ in range(ROUNDS):
            for name, command in WAYS.items():
                found[name].append(measured(command, root))
    rates = {name: statistics.median(rate for rate, _ in runs) for name, runs in found.items()}
    Report("training").show("Stage two", rates, "update", BASELINE)
    for name, runs in found.items():
        print(f"{name:<50} loss {statistics.median(loss for _, loss in runs):.4f}")


if __name__ == "__main__":
    main()
