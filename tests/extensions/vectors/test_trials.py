"""Trials in worlds of vectors, with each distribution of actions."""

import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from torch import Tensor
from trial_models import OPTIONS, learned
from vector_probes import VectorProbe, always

from icrl.config.options import replace
from icrl.training.trials import Trials


def side(x: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Reward 1 if the first number of the action is above 1 where that of the observation is positive, else below."""
    high = action.reshape(len(action), -1)[:, 0] > 1
    return x, (high == (x[:, 0] > 0)).float(), always(x, True)


@pytest.mark.parametrize(
    ("space", "head"),
    [
        (Box(0, 2, (1,)), "gaussian"),
        (Box(0, 2, (1,)), "binned"),
        (MultiDiscrete([4, 2]), "auto"),
        (Discrete(4), "auto"),
    ],
)
def test_trials_teach_any_head_from_vectors_and_rewards_that_are_not_listed(space, head):
    env = VectorProbe(space, side, varied=True)
    options = replace(OPTIONS, trial_steps=8, num_streams=32, num_mini_batches=2, bonus=0.0, discount=0.0)
    model, _ = learned(env, options, 30, 0.01, head=head, num_bins=6)
    played, _ = Trials(options, env, env.all_tasks(), model, seed=1).play(0)
    assert played.reward.mean() > 0.65
