"""Searchers of rooms against scalar Python that is told of every move in full."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scalar_search import ScalarPermutedSearcher, ScalarPosteriorSampler, ScalarSearcher, check_search
from worlds import room

from icrl.app.compose import load_config
from icrl.contracts import Step
from icrl.envs import make_env
from icrl.evaluation.references import searchers_in
from icrl.extensions.searchers.rooms import PermutedSearcher, PosteriorSampler, RoomSearcher

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("kind", "scalar"),
    [
        (RoomSearcher, ScalarSearcher),
        (PermutedSearcher, ScalarPermutedSearcher),
        (PosteriorSampler, ScalarPosteriorSampler),
    ],
)
@settings(max_examples=8, deadline=None)
@given(st.integers(2, 5), st.booleans(), st.booleans(), st.integers(2, 16), st.integers(0, 10**6))
def test_searchers_equal_a_scalar_search(
    kind: Any, scalar: Any, size: int, start: bool, end: bool, num_steps: int, seed: int
) -> None:
    """Step by step, on a few tasks."""
    options: dict[str, Any] = {"size": size, "random_start": start, "max_episode_steps": num_steps}
    env = room(terminate_on_goal=end, permute_actions=kind is PermutedSearcher, **options)
    assert kind is PosteriorSampler or type(searchers_in(env)["searcher"]) is kind
    check_search(env, kind(env), scalar, 1, seed)


def test_what_a_searcher_knows_where_the_goal_is_missed() -> None:
    """The goal may be everywhere again but on the start and where it is missed."""
    env = room(size=3)
    searcher = RoomSearcher(env)

    def shown(memory: Any, cell: int, reward: int, timestep: int) -> Any:
        obs, no = torch.tensor([cell]), torch.zeros(1, dtype=torch.bool)
        return searcher.learned(memory, Step(obs, torch.tensor([reward]), no, no, obs, torch.tensor([timestep]), obs))

    memory = searcher.initial_carry(1)
    for cell, reward, timestep in ((4, 0, 0), (1, 0, 1), (2, 1, 2)):
        memory = shown(memory, cell, reward, timestep)
    assert memory.goal.tolist() == [[2]] and not memory.candidate[0, 0, [1, 2, 4]].any()
    memory = shown(memory, 2, 0, 3)
    assert memory.goal.tolist() == [[-1]]
    assert memory.candidate[0, 0].nonzero()[:, 0].tolist() == [0, 1, 3, 5, 6, 7, 8]


WALKS = [f"{kind} walk with goal memory" for kind in ("persistent", "turning", "uniform")]
ROOM = ["searcher", "covering plan", *WALKS]
REFERENCES = {"dark_room": ROOM, "dark_room_classic": ROOM, "dark_room_permuted": ["searcher"]}


@pytest.mark.parametrize("name", REFERENCES)
def test_each_room_has_its_own_references(name: str) -> None:
    """Without one start there is no plan."""
    options = [f"env={name}", "env.size=3", "env.max_episode_steps=6"]
    assert list(searchers_in(make_env(load_config(options).env))) == REFERENCES[name]
    assert list(searchers_in(make_env(load_config([*options, "env.random_start=true"]).env))) == ["searcher"]
