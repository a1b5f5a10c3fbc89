"""Hazard of the first success and success after it, against plain loops and numbers by hand."""

from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icrl.extensions.first_success.measures import LAGS, expected, measures_of


def found_in(success: Any) -> dict[str, dict[str, Any]]:
    return measures_of(np.array(success, float), 100, 0)


def test_hazard_and_what_follows_by_hand() -> None:
    """Four streams: first success in episodes 1, 2 and 2, and none. One forgets for an episode."""
    found = found_in([[[[1, 0, 1, 1], [0, 1, 1, 1], [0, 1, 1, 1], [0, 0, 0, 0]]]])
    hazard = found["curves"]["first_success"]
    assert hazard["mean"] == pytest.approx([1 / 4, 2 / 3, 0, 0])
    assert hazard["at_risk"] == [1, 3 / 4, 1 / 4, 1 / 4]
    assert found["curves"]["after_first_success"]["mean"] == pytest.approx([2 / 3, 1, 1])
    assert found["final"]["success_after_first"]["mean"] == pytest.approx(6 / 7)


def test_there_is_nothing_to_tell_where_all_or_none_succeed() -> None:
    found = found_in([[[[1, 1, 1]]]])
    assert found["curves"]["first_success"]["mean"] == [1] and found["curves"]["first_success"]["at_risk"] == [1]
    assert found["curves"]["after_first_success"]["mean"] == [1, 1]
    found = found_in([[[[0, 0, 0]]]])
    assert found["curves"].keys() == {"first_success"} and not found["final"]
    assert found["curves"]["first_success"]["mean"] == [0, 0, 0]
    assert found_in([[[[0, 1]]]])["curves"].keys() == {"first_success"}  # no episode is left after it


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(2, 14))
def test_measures_by_loops(seed: int, num_runs: int, num_tasks: int, num_streams: int, num_episodes: int) -> None:
    rng = np.random.default_rng(seed)
    success = rng.random((num_runs, num_tasks, num_streams, num_episodes)) < rng.choice([0.1, 0.4])
    hazard: list[list[bool]] = [[] for _ in range(num_episodes)]
    after: list[list[bool]] = [[] for _ in range(LAGS)]
    for row in success.reshape(-1, num_episodes).tolist():
        first = row.index(True) if True in row else num_episodes
        for episode in range(min(first + 1, num_episodes)):
            hazard[episode].append(row[episode])
        for lag, later in enumerate(row[first + 1 : first + 1 + LAGS]):
            after[lag].append(later)
    found = measures_of(success, 100, seed)["curves"]
    for name, outcomes in (("first_success", hazard), ("after_first_success", after)):
        means = [sum(each) / len(each) for each in outcomes if each]
        assert found.get(name, {"mean": []})["mean"] == pytest.approx(means)
        if means:
            ends = np.array(found[name]["low"]), np.array(found[name]["high"])
            assert (ends[0] >= 0).all() and (ends[0] <= ends[1]).all() and (ends[1] <= 1).all()
    total = success[..., 0].size
    assert found["first_success"]["at_risk"] == [len(each) / total for each in hazard if each]


def test_expected_curves_are_means_over_all_outcomes() -> None:
    chances, num_episodes = np.array([0.25, 0.5, 1.0]), 5
    above, below = (np.zeros(2 * num_episodes) for _ in range(2))
    for chance in chances:
        for row in product((0, 1), repeat=num_episodes):
            weight = prod(chance if won else 1 - chance for won in row)
            first = row.index(1) if 1 in row else num_episodes
            for episode in range(min(first + 1, num_episodes)):
                above[episode] += weight * row[episode]
                below[episode] += weight
            for lag, later in enumerate(row[first + 1 :]):
                above[num_episodes + lag] += weight * later
                below[num_episodes + lag] += weight
    found = expected(chances, num_episodes)
    assert found["first_success"]["mean"] == pytest.approx(above[:5] / below[:5])
    assert found["first_success"]["at_risk"] == pytest.approx(below[:5] / 3)
    assert found["after_first_success"]["mean"] == pytest.approx(above[5:9] / below[5:9])
    assert found["after_first_success"]["low"] == found["after_first_success"]["high"]
    assert expected(np.ones(2), 5)["first_success"]["mean"] == [1]
    assert expected(np.zeros(2), 5).keys() == {"first_success"}
