"""Specs of worlds in JSON and as tensors."""

import json
import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from icrl.contracts import ConfigError
from icrl.envs.policies import uniform_actions
from icrl.spaces import EnvSpec, discrete_spec, read_space, written_space

IMAGES = Box(0, 255, (4, 5, 3), np.uint8)
VECTORS = Box(np.array([-1, -np.inf, 0], np.float32), np.array([1, 2, np.inf], np.float32))
SPACES = [Discrete(7), MultiDiscrete([3, 2]), IMAGES, VECTORS, Box(-np.inf, np.inf, (2,)), Box(-1, 1, ())]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_spaces_come_back_from_strict_json(space: Space) -> None:
    spec = EnvSpec(space, VECTORS, (), 0, 9)
    written = json.dumps(spec.to_json(), allow_nan=False)
    assert EnvSpec.of(json.loads(written)) == spec
    assert spec.obs_shape == space.shape and torch.from_numpy(np.asarray(space.sample())).dtype == spec.obs_dtype


@given(
    arrays(np.float32, 3, elements=st.floats(-(2.0**99), 2.0**99, width=32)),
    arrays(np.float32, 3, elements=st.floats(0, 9, width=32)),
)
def test_bounds_come_back_exactly(low: np.ndarray, width: np.ndarray) -> None:
    space = Box(low, low + width)
    assert read_space(json.loads(json.dumps(written_space(space)))) == space


def test_other_spaces_are_refused() -> None:
    for space in (Dict({"a": Discrete(2)}), Discrete(3, start=1), MultiDiscrete([3, 2], start=[0, 1])):
        with pytest.raises(TypeError, match="must be Discrete or MultiDiscrete from 0, or a Box"):
            written_space(space)
    with pytest.raises(ConfigError, match=r"actions in Box\(.* have no bounds"):
        uniform_actions(EnvSpec(VECTORS, VECTORS, (), 0, 9), torch.zeros(2, 3), torch.zeros(2))
    with pytest.raises(TypeError, match="are not integers"):
        EnvSpec(VECTORS, VECTORS, (), 0, 9).num_actions  # noqa: B018 - it raises
    with pytest.raises(TypeError, match=r"has the dtype float64: must be one of float32, "):
        EnvSpec(Box(-1, 1, (2,), np.float64), VECTORS, (), 0, 9).obs_dtype  # noqa: B018 - it raises


def test_rewards_that_are_listed_as_ints_are_floats() -> None:
    """Also for worlds that list equal ones as floats later."""
    for values in ((0, 3), (0.0, 3.0)):
        assert discrete_spec(9, 5, values, 3, 6).reward_of(torch.tensor([1, 0])).dtype == torch.float32


def test_specs_of_older_versions_are_read() -> None:
    """They recorded numbers of observations and actions."""
    old = {"num_obs": 9, "num_actions": 5, "reward_values": [0.0, 1.0], "width": 3, "max_episode_steps": 6}
    old |= {"success": "goal", "points": [0, 0], "success_return": 0.0}
    assert EnvSpec.of(old) == discrete_spec(9, 5, (0.0, 1.0), 3, 6, "goal")
    points = discrete_spec(9, 5, (0.0, 1.0), 0, 6, "end", points=(2, 1))
    assert EnvSpec.of(old | {"points": [2, 1], "width": 0, "success": "end"}) == points
    assert (points.num_obs, points.obs_shape, points.num_actions) == (9, (8,), 5)


def test_rewards_and_unknown_actions() -> None:
    spec, nothing = discrete_spec(1, 3, (2.0, 0.0, 0.1), 0, 1), torch.zeros(2)
    paid = torch.tensor([[0.1, 2.0], [0.0, 0.1]])
    assert spec.reward_index(paid).tolist() == [[2, 0], [1, 2]]
    assert torch.equal(spec.reward_of(spec.reward_index(paid)), paid)
    assert spec.unknown_action(nothing).tolist() == [3, 3] and spec.is_discrete
    vectors = EnvSpec(VECTORS, VECTORS, (), 0, 9)
    assert vectors.unknown_action(nothing).isnan().all() and vectors.unknown_action(nothing).shape == (2, 3)
    assert not vectors.is_discrete and not vectors.num_rewards and math.prod(vectors.action_shape) == 3
