"""Timing of benchmarks: alternatives in turn, because the speed of a machine drifts; medians of the rounds."""

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path

import torch

from icrl.contracts import Json
from icrl.runs.files import PROJECT, write_json
from icrl.runs.record import git_state

RESULTS = Path(__file__).with_name("results")


def side_by_side(
    alternatives: Mapping[str, Callable[[], int]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Median throughput of each alternative. A call does some work and returns its number of units.

    With `time.process_time` as the clock, other work on the machine counts little. It is only for work in this process
    on one core."""
    rates: dict[str, list[float]] = {name: [] for name in alternatives}
    for work in alternatives.values():
        work()  # warm up
    for _ in range(rounds):
        for name, work in alternatives.items():
            start = clock()
            units = work()
            rates[name].append(units / (clock() - start))
    return {name: statistics.median(found) for name, found in rates.items()}


def waiting(work: Callable[[], int], device: torch.device) -> Callable[[], int]:
    """`work` that ends when the device has done it."""

    def done() -> int:
        units = work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return units

    return done


def fastest(rates: Mapping[str, float], peer: str) -> str:
    """Name of the fastest alternative among those whose names begin with `peer`."""
    return max((name for name in rates if name.startswith(peer)), key=lambda name: rates[name])


def about() -> Json:
    """Date, commit and machine of a measurement."""
    git, capability = git_state(PROJECT), torch.backends.cpu.get_cpu_capability()
    commit = f"{(git['revision'] or 'unknown')[:7]}{'+' if git['dirty'] else ''}"
    machine = f"{os.cpu_count()}-core {platform.machine()} with {capability}, PyTorch {torch.__version__}"
    return {"date": date.today().isoformat(), "commit": commit, "machine": machine}


class Report:
    """Tables of the benchmark `benchmarks.<name>`. They are printed, and kept in `results/` under the last part of the
    name, with date, commit and machine; `benchmarks.page` writes a page from them."""

    def __init__(self, name: str, overrides: list[str] | None = None, folder: Path = RESULTS) -> None:
        """With `overrides` of options nothing is kept."""
        self._path = None if overrides else folder / f"{name.rpartition('.')[2]}.json"
        self._tables: list[Json] = []
        self._found: Json = {"command": f"python -m benchmarks.{name}"} | about() | {"tables": self._tables}

    def show(
        self,
        title: str,
        rates: Mapping[str, float],
        unit: str,
        baseline: str,
        floors: Mapping[str, float] | None = None,
    ) -> None:
        """Print and keep each alternative's median, its ratio to the baseline and, where `floors` has the rate that the
        machine's arithmetic allows, the share of that rate."""
        floors = floors or {}
        print(title)
        for name, rate in rates.items():
            ratio = f"{rate / rates[baseline]:>8.2f} x {baseline}"
            share = f"   {rate / floors[name]:.0%} of the floor" if name in floors else ""
            print(f"{name:<50} {rate:>14,.{0 if rate >= 100 else 2}f} {unit}/s   {ratio}{share}")
        table = {"title": title, "unit": unit, "baseline": baseline, "rates": dict(rates), "floors": dict(floors)}
        self._tables.append(table)
        if self._path:
            write_json(self._path, self._found)
