"""Updates per second with freed memory kept in the process (`icrl.runs.device.keep_freed_memory`) and given back.

    python -m benchmarks.freed_memory

Each round is a process of its own on one thread, because the C library cannot be set back to what it does by default.
Rates are per second of processor time, which page faults are a part of. The most memory of each is printed too.
"""

import json
import resource
import statistics
import subprocess
import sys
import time

import torch

from benchmarks.measure import Report
from benchmarks.stage_two import updates
from icrl.app.compose import load_config
from icrl.runs.device import keep_freed_memory
from icrl.runs.files import PROJECT

ROUNDS = 3
RECIPES = {
    "default, bfloat16": ["device.amp_dtype=bfloat16"],
    "default, float32": ["device.amp_dtype=none"],
    "reference, a quarter of its windows": ["experiment=reference", "trainer.mini_batch_size=8"],
}
KEPT, GIVEN_BACK = "kept", "given back"


def measure(recipe: str, way: str) -> None:
    """Print the rate of updates of one recipe in this process, and the most memory in bytes."""
    torch.set_num_threads(1)
    if way == KEPT:
        keep_freed_memory()
    times = 2 if "reference" in recipe else 20
    work = updates(load_config(RECIPES[recipe]), times)
    work()  # warm up
    start = time.process_time()
    done = work()
    rate = done / (time.process_time() - start)
    print(json.dumps([rate, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))


def main() -> None:
    report = Report("freed_memory")
    for recipe in RECIPES:
        found: dict[str, list[list[float]]] = {GIVEN_BACK: [], KEPT: []}
        for _ in range(ROUNDS):
            for way, rounds in found.items():
                command = [sys.executable, "-m", "benchmarks.freed_memory", recipe, way]
                output = subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, text=True).stdout
                rounds.append(json.loads(output))
        rates = {way: statistics.median(rate for rate, _ in rounds) for way, rounds in found.items()}
        report.show(f"Update, {recipe}", rates, "update", GIVEN_BACK)
        for way, rounds in found.items():
            print(f"{way:<50} {max(size for _, size in rounds) / 1e9:.2f} GB")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measure(*sys.argv[1:])
    else:
        main()
