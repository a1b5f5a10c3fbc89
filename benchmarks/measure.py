"""Timing of benchmarks: alternatives in turn, because the speed of a machine drifts; medians of the rounds."""

import statistics
import time
from collections.abc import Callable, Mapping


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


def fastest(rates: Mapping[str, float], peer: str) -> str:
    """Name of the fastest alternative among those whose names begin with `peer`."""
    return max((name for name in rates if name.startswith(peer)), key=lambda name: rates[name])


def show(rates: Mapping[str, float], unit: str, baseline: str) -> None:
    """Print each alternative's median and its ratio to the baseline."""
    for name, rate in rates.items():
        print(
            f"{name:<50} {rate:>14,.{0 if rate >= 100 else 2}f} {unit}/s   {rate / rates[baseline]:>8.2f} x {baseline}"
        )
