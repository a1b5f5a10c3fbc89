"""Models as policies of host and agent, whose actions are not all legal, against a slow reference without a cache."""

import pytest
from point_worlds import point_game
from policies import FRACTIONS, assert_driven_by_hand, assert_frequencies, assert_slow_past_full_contexts, gpt

from icrl.nn.gpt_policy import GPTPolicy

WORLDS = {
    "host": point_game(opponents=["table_3", "random", "last", "first@0.5", "order_120"], dimensions=[3, 2]),
    "agent": point_game(role="agent", opponents=["zeillinger", "random_pair", "weak_spivakovsky", "random_subset"]),
}
TOKENS = ("transition", "interleaved", "cross")
FORMS = [
    *(("host", {"tokens": tokens, "position": "sinusoidal"}) for tokens in TOKENS),
    *(("agent", {"tokens": tokens, "position": "rope"}) for tokens in TOKENS),
]


@pytest.mark.parametrize(("world", "form"), FORMS, ids=str)
def test_logits_equal_the_slow_reference_past_full_contexts(world: str, form: dict) -> None:
    assert_slow_past_full_contexts(WORLDS[world], **form)


@pytest.mark.parametrize(("std", "epsilon"), FRACTIONS)
@pytest.mark.parametrize("world", WORLDS)
def test_actions_have_the_frequencies_of_the_policy(world: str, std: float, epsilon: float) -> None:
    assert_frequencies(WORLDS[world], std, epsilon, masked=True)


def test_a_model_driven_by_hand_acts_as_in_a_rollout() -> None:
    env = point_game(role="agent", opponents=["random_subset"])
    assert_driven_by_hand(GPTPolicy(gpt(env.spec), 1.0, 1.0, 0.5), env)
