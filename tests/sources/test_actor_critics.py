"""A2C and PPO on worlds whose values are known."""

import pytest
from probes import ENDLESS, MATCH_IT, ONE_STEP, TWO_STEPS, Probe, learn_world
from torch import Tensor

from icrl.config.compose import load_config
from icrl.sources.a2c import A2C
from icrl.sources.ppo import PPO

OPTIONS = ("source.hidden_size=8", "source.learning_rate=0.02", "source.discount=0.5")
KINDS = {"a2c": (A2C, 0.5), "ppo": (PPO, 5.0)}  # and the gradient norm that is clipped to

pytestmark = pytest.mark.parametrize("name", KINDS)


def learn(name: str, env: Probe, num_updates: int) -> tuple[Tensor, Tensor]:
    """Probabilities `[S, A]` and values `[S]` after learning with discount 0.5."""
    kind, norm = KINDS[name]
    config = load_config([f"source={name}", *OPTIONS, f"source.max_gradient_norm={norm}"]).source
    outputs = learn_world(kind, config, env, num_updates).outputs()
    return outputs["log_policy"].exp(), outputs["values"]


def test_value_of_one_step(name: str) -> None:
    _, values = learn(name, ONE_STEP, 200)
    assert values.tolist() == pytest.approx([1.0], abs=0.02)


def test_the_right_action_for_each_observation(name: str) -> None:
    probabilities, values = learn(name, MATCH_IT, 300)
    assert probabilities.diagonal().min() > 0.95
    assert values.min() > 0.9


def test_discounting(name: str) -> None:
    _, values = learn(name, TWO_STEPS, 300)
    assert values.tolist() == pytest.approx([0.5, 1.0], abs=0.03)


def test_truncation_bootstraps(name: str) -> None:
    """1 + 1/2 + 1/4 + ... = 2, though an episode is two steps long; with its end as the task's end it were < 1.5."""
    _, values = learn(name, ENDLESS, 300)
    assert values.tolist() == pytest.approx([2.0], abs=0.05)
