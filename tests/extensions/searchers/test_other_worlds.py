"""Searchers of other worlds: against scalar Python, what they count, and which world has which."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from installed import needs
from scalar_search import ScalarPosteriorSampler, ScalarSearcher, check_search
from searching import searcher_in
from stage_one import play

from icrl import extensions
from icrl.contracts import ConfigError
from icrl.extensions.searchers.rooms import RoomSearcher
from icrl.extensions.searchers.sampler import PosteriorSampler

if "worlds" in extensions.NAMES:
    from small_worlds import key_to_door

    from icrl.extensions.worlds.learners import LinearThompsonSampling, PosteriorSamplingRL, ThompsonSampling

pytestmark = needs("worlds")


@pytest.mark.parametrize("sampled", [False, True])
@settings(max_examples=8, deadline=None)
@given(st.integers(2, 5), st.booleans(), st.booleans(), st.integers(2, 16), st.integers(0, 10**6))
def test_searchers_equal_a_scalar_search(sampled: bool, size: int, start: bool, shown: bool, num_steps: int, seed: int):
    """Step by step, on a few tasks with a key and a door."""
    options: dict[str, Any] = {"size": size, "random_start": start, "max_episode_steps": num_steps}
    env = key_to_door(show_key=shown, **options)
    searcher, scalar = (PosteriorSampler, ScalarPosteriorSampler) if sampled else (RoomSearcher, ScalarSearcher)
    check_search(env, searcher(env), scalar, 2, seed)


def test_a_searcher_credits_rewards_to_the_arm_that_was_pulled() -> None:
    """Also after random pulls."""
    learner, env = searcher_in("env=bandit")
    played, streams = play(learner, env, env.all_tasks()[:40], 50)
    pulled = torch.nn.functional.one_hot(played.action[:-1], env.spec.num_actions)  # the last is not counted yet
    assert torch.equal(streams.carry.count[:, 0], pulled.sum(0).float())
    assert torch.equal(streams.carry.total[:, 0], (pulled * played.reward[:-1, :, None]).sum(0).float())


def test_every_world_has_its_own_searcher_and_a_bandit_no_plan() -> None:
    kinds = {"dark_key_to_door": RoomSearcher, "bandit": ThompsonSampling, "bandit_linear": LinearThompsonSampling}
    kinds |= {"garnet": PosteriorSamplingRL, "anymdp": PosteriorSamplingRL}
    for world, kind in kinds.items():
        assert type(searcher_in(f"env={world}")[0].policy) is kind
    with pytest.raises(ConfigError, match=r"strategy=covering_plan: there is no such searcher with env\.name=bandit"):
        searcher_in("source=covering_plan", "env=bandit")


@needs("vectors")
def test_a_world_of_vectors_has_none() -> None:
    with pytest.raises(ConfigError, match=r"there is no such searcher with env\.name=point_robot"):
        searcher_in("env=point_robot")
