"""Searchers of rooms against scalar Python that is told of every move in full."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scalar_search import ScalarPermutedSearcher, ScalarSearcher, check_search
from worlds import room

from icrl.evaluation.scripted.rooms import PermutedSearcher, RoomSearcher, searchers_in


@pytest.mark.parametrize("permuted", [False, True])
@settings(max_examples=8, deadline=None)
@given(st.integers(2, 5), st.booleans(), st.booleans(), st.integers(2, 16), st.integers(0, 10**6))
def test_searchers_equal_a_scalar_search(permuted: bool, size: int, start: bool, end: bool, num_steps: int, seed: int):
    """Step by step, on a few tasks."""
    options: dict[str, Any] = {"size": size, "random_start": start, "max_episode_steps": num_steps}
    env = room(terminate_on_goal=end, permute_actions=permuted, **options)
    searcher, scalar = (PermutedSearcher, ScalarPermutedSearcher) if permuted else (RoomSearcher, ScalarSearcher)
    found = searchers_in(env)["searcher"]
    assert type(found) is searcher
    check_search(env, found, scalar, 1, seed)
