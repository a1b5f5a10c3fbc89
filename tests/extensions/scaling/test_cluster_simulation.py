"""Simulated cluster against times that were worked out by hand."""

from dataclasses import replace

import pytest

from benchmarks.extensions.scaling.cluster_simulation import Cluster, Failures, Load, Steps, stage_one, stage_two
from benchmarks.extensions.scaling.thousand_gpus import Training, update_of

ONE = Cluster(num_nodes=1, workers_per_node=1, bandwidth=10.0, repair=100.0)
LOAD = Load(units=3, parts=4, seconds=5.0, size=20.0, start=1.0, schedule=0.5)


def at(*times: float, node: int = 0) -> Failures:
    """Failures of one node at these times."""
    return lambda number: iter(times if number == node else ())


def test_one_worker_does_one_unit_after_the_other() -> None:
    """Each unit: handed out in 0.5, started in 1, four parts of 5 seconds and 2 to write 20 bytes."""
    assert stage_one(LOAD, ONE, at()) == 3 * (0.5 + 1 + 4 * (5 + 2))


def test_the_slowest_part_of_the_cluster_decides() -> None:
    many = replace(ONE, num_nodes=5, workers_per_node=2)
    units = LOAD._replace(units=10)
    assert stage_one(units._replace(size=0.0), many, at()) == 10 * 0.5 + 1 + 4 * 5  # the last unit begins last
    one_wave = units._replace(size=0.0, schedule=0.0)
    assert stage_one(one_wave, many, at()) == 21 and stage_one(LOAD._replace(units=11), many, at()) > 42
    only_written = units._replace(seconds=0.0, schedule=0.0, start=0.0)
    assert stage_one(only_written, many, at()) == pytest.approx(10 * 4 * 20 / 10)


def test_a_failed_node_loses_what_is_after_its_checkpoint() -> None:
    """The only worker fails at 10, 1.5 seconds into the second part, and at 112, before the next checkpoint."""
    assert stage_one(LOAD._replace(units=1), ONE, at(10.0)) == 10 + 100 + 0.5 + 1 + 3 * 7
    assert stage_one(LOAD._replace(units=1), ONE, at(10.0, 112.0)) == 112 + 100 + 0.5 + 1 + 3 * 7


def test_another_node_takes_over() -> None:
    """Two units on two nodes; the second fails at 10, and its unit waits for the first, which is done at 29.5."""
    two = replace(ONE, num_nodes=2, bandwidth=1e9, repair=1e6)
    assert stage_one(LOAD._replace(units=2, size=0.0, schedule=0.0), two, at(10.0, node=1)) == 21 + 1 + 3 * 5


def test_training_goes_back_to_its_last_checkpoint() -> None:
    """100 updates of 2 seconds, a checkpoint of 3 seconds after each 20, all processes start in 7."""
    steps = Steps(updates=100, seconds=2.0, interval=40.0, save=3.0, start=7.0)
    assert stage_two(steps, iter(()), 50.0) == 7 + 5 * 43
    assert stage_two(steps, iter((60.0,)), 50.0) == 60 + 50 + 7 + 4 * 43  # the first checkpoint was at 50
    assert stage_two(steps, iter((60.0, 100.0)), 50.0) == 100 + 50 + 7 + 4 * 43  # again before the restart
    assert stage_two(steps._replace(interval=30.0), iter(()), 50.0) == 7 + 200 + 7 * 3  # the last one is short


def test_an_update_hides_the_exchange_behind_its_last_backward_pass() -> None:
    """6 operations for each of 10 parameters and 10 steps: 6 s at 100 a second, 4 of them backward; 80 bytes."""
    training = Training(parameters=10, steps_in_window=5, windows_per_gpu=2, accumulation=3)
    hidden = update_of(training, replace(ONE, flops=100.0, network=20.0), num_gpus=4)
    assert hidden == (18, 4, 18, round(1e12 / 120))
    assert update_of(training, replace(ONE, flops=100.0, network=10.0), num_gpus=4).total == 18 + 8 - 4
