"""Simulation of a cluster: units of stage one with scheduler, shared file system and nodes that fail; and a training.

The scheduler and the file system serve one request after the other. A node that fails is replaced after a while; the
units on it are handed out again and go on from their last checkpoint. Seconds everywhere.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

HOUR, NEVER = 3600.0, float("inf")
Failures = Callable[[int], Iterator[float]]  # times at which a node fails, by its number


@dataclass(frozen=True)
class Cluster:
    """Machines, as assumed."""

    num_nodes: int = 125
    gpus_per_node: int = 8
    workers_per_node: int = 64  # units of stage one at a time, one core each
    gpu_hours_between_failures: float = 50_000.0  # of all parts of the node that serve a GPU
    repair: float = 600.0  # seconds until another node has taken the place of a failed one
    bandwidth: float = 100e9  # bytes a second of the shared file system, for all together
    flops: float = 4e14  # of a GPU in training, a second
    network: float = 50e9  # bytes a second in and out of a GPU
    maps: int = 65_530  # memory maps of a process, the default of Linux

    @property
    def node_seconds_between_failures(self) -> float:
        return self.gpu_hours_between_failures / self.gpus_per_node * HOUR


class Load(NamedTuple):
    """Units of stage one: each has so many parts that end with a checkpoint."""

    units: int
    parts: int
    seconds: float  # of a part on a worker
    size: float  # bytes that a part writes
    start: float  # seconds in which a unit's program starts
    schedule: float  # seconds of the scheduler for a unit


def random_failures(cluster: Cluster, seed: int) -> Failures:
    """Failures of independent nodes that come at the same rate at any time."""

    def times(node: int) -> Iterator[float]:
        random, now = Random(seed * 10**6 + node), 0.0
        while True:
            now += random.expovariate(1 / cluster.node_seconds_between_failures)
            yield now

    return times


class _Server:
    """Serves one request after the other."""

    def __init__(self) -> None:
        self.free = 0.0

    def serve(self, now: float, seconds: float) -> float:
        """Time at which a request of this moment is done."""
        self.free = max(self.free, now) + seconds
        return self.free


class _Collection:
    """State of the collection of all units of `load`."""

    def __init__(self, load: Load, cluster: Cluster, failures: Failures) -> None:
        self.load, self.cluster = load, cluster
        self.scheduler, self.file_system, self._order = _Server(), _Server(), itertools.count()
        self.events: list[tuple[float, int, Callable[..., None], int, tuple[int, ...]]] = []
        self.waiting, self.left = deque((unit, load.parts) for unit in range(load.units)), load.units
        self.running: list[dict[int, int]] = [{} for _ in range(cluster.num_nodes)]  # parts left, by unit
        self.idle, self.broken = [cluster.workers_per_node] * cluster.num_nodes, [0] * cluster.num_nodes
        self.now = 0.0
        self._strikes = [failures(node) for node in range(cluster.num_nodes)]
        for node, strike in enumerate(self._strikes):
            self._at(next(strike, NEVER), self.fail, node)
            self._hand_out(node)

    def _at(self, time: float, event: Callable[..., None], node: int, *what: int) -> None:
        heapq.heappush(self.events, (time, next(self._order), event, node, what))

    def _hand_out(self, node: int) -> None:
        """Give waiting units to the idle workers of a node."""
        while self.waiting and self.idle[node]:
            self.idle[node] -= 1
            unit, parts = self.waiting.popleft()
            begun = self.scheduler.serve(self.now, self.load.schedule)
            self.running[node][unit] = parts
            end = begun + self.load.start + self.load.seconds
            self._at(end, self.compute, node, self.broken[node], unit)

    def fail(self, node: int) -> None:
        self.broken[node] += 1
        self.waiting.extend(self.running[node].items())
        self.running[node].clear()
        self.idle[node] = 0
        self._at(self.now + self.cluster.repair, self.repair, node, self.broken[node])
        self._at(next(self._strikes[node], NEVER), self.fail, node)
        for other in range(self.cluster.num_nodes):
            self._hand_out(other)

    def repair(self, node: int, broken: int) -> None:
        if broken == self.broken[node]:
            self.idle[node] = self.cluster.workers_per_node
            self._hand_out(node)

    def compute(self, node: int, broken: int, unit: int) -> None:
        """A part is computed, unless its node has failed since."""
        if broken == self.broken[node]:
            end = self.file_system.serve(self.now, self.load.size / self.cluster.bandwidth)
            self._at(end, self.save, node, broken, unit)

    def save(self, node: int, broken: int, unit: int) -> None:
        if broken != self.broken[node]:
            return
        parts = self.running[node].pop(unit)
        if parts > 1:
            self.running[node][unit] = parts - 1
            self._at(self.now + self.load.seconds, self.compute, node, broken, unit)
        else:
            self.left, self.idle[node] = self.left - 1, self.idle[node] + 1
            self._hand_out(node)


def stage_one(load: Load, cluster: Cluster, failures: Failures) -> float:
    """Seconds of the collection of all units of `load` with the nodes of `cluster`."""
    state = _Collection(load, cluster, failures)
    while state.left:
        state.now, _, event, node, what = heapq.heappop(state.events)
        event(node, *what)
    return state.now


class Steps(NamedTuple):
    """Updates of stage two: each takes `seconds`, a checkpoint after each `interval` seconds of them takes `save`."""

    updates: int
    seconds: float
    interval: float
    save: float
    start: float  # seconds in which all processes start, open the histories and load the checkpoint


def stage_two(steps: Steps, failures: Iterator[float], repair: float) -> float:
    """Seconds of a training that goes back to its last checkpoint whenever a node fails, at the times `failures`."""
    per_save = max(1, round(steps.interval / steps.seconds))
    now, done, start, fails = 0.0, 0, steps.start, next(failures, NEVER)
    while done < steps.updates:
        updates = min(per_save, steps.updates - done)
        end = now + start + updates * steps.seconds + steps.save
        if end <= fails:
            now, done, start = end, done + updates, 0.0
        else:
            now, start, fails = fails + repair, steps.start, next(failures, NEVER)
    return now


def any_node(cluster: Cluster, seed: int) -> Iterator[float]:
    """Times at which any node fails."""
    random, now = Random(seed), 0.0
    while True:
        now += random.expovariate(cluster.num_nodes / cluster.node_seconds_between_failures)
        yield now
