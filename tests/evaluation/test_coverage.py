"""Coverage against a walk written out by hand, in plain Python."""

import numpy as np
import pytest
import torch
from torch import Tensor

from icrl.config.compose import load_config
from icrl.config.env_schema import DarkRoomConfig
from icrl.contracts import Step
from icrl.envs.dark_room import DarkRoom
from icrl.evaluation.coverage import NUM_EPISODES, coverage_of
from icrl.evaluation.probes import Wiped, policy_of
from icrl.nn.gpt import GPT
from icrl.sources.explorers import UniformWalk


class Written:
    """Does what is written, stream by stream and step by step; the carry is the number of steps."""

    def __init__(self, actions: list[list[int]]) -> None:
        self.actions = torch.tensor(actions)

    def initial_carry(self, num_streams: int) -> int:
        return 0

    def act(self, carry: int, step: Step, noise: Tensor) -> tuple[Tensor, int]:
        return self.actions[:, carry % self.actions.shape[1]], carry + 1


def room(terminate: bool) -> DarkRoom:
    return DarkRoom(DarkRoomConfig("dark_room", "test", 2, 3, False, terminate, False))


@pytest.mark.parametrize("terminate", [True, False])
def test_by_hand(terminate: bool) -> None:
    """From the centre: up and right; left and stay; and so on again. The other stream never leaves the centre."""
    policy = Written([[1, 2, 4, 0], [0, 0, 0, 0]])
    found = coverage_of({"walk": policy}, room(terminate), 2, seed=0)["walk"]
    assert found.shape == (1, 2, NUM_EPISODES)
    assert found[0, 0].tolist() == pytest.approx([2 / 8, 3 / 8, 3 / 8, 3 / 8, 3 / 8, 3 / 8])
    assert found[0, 1].tolist() == [0] * NUM_EPISODES  # the start is no goal


def test_it_grows_and_is_the_same_again() -> None:
    env = room(terminate=True)
    one, again = (coverage_of({"walk": UniformWalk(env)}, env, 50, seed=3)["walk"] for _ in range(2))
    np.testing.assert_array_equal(one, again)
    assert (np.diff(one, axis=2) >= 0).all() and (one <= 1).all() and one.mean() > 0.2


def test_a_model_can_be_measured_with_and_without_its_context() -> None:
    """In the first episode nothing was wiped; a context that holds one episode and a half."""
    small = ("model.embed_dim=8", "model.num_layers=1", "model.num_heads=1", "model.ff_dim=8", "model.context_len=6")
    config = load_config(["env.size=3", "env.max_episode_steps=4", *small])
    env = DarkRoom(config.env)
    policy = policy_of(config, GPT(config.model, env.spec))
    found = coverage_of({"kept": policy, "wiped": Wiped(policy)}, env, 20, seed=0)
    np.testing.assert_array_equal(found["kept"][..., 0], found["wiped"][..., 0])
