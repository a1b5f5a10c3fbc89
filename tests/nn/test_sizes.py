"""Parameters that are counted without a network are those that the network has."""

import itertools

import pytest
import torch
from critics import config_of, fresh_critic
from hypothesis import given, settings
from hypothesis import strategies as st
from point_worlds import point_game
from torch import nn

from icrl.config.options import replace
from icrl.contracts import EnvSpec
from icrl.nn.critic import trunk_config
from icrl.nn.gpt import GPT
from icrl.nn.layers import Layer
from icrl.nn.net_arch import make_network
from icrl.nn.sizes import gpt_parameters, learner_parameters, net_parameters, values_parameters
from icrl.nn.stacked import StackedNetwork, StackedPointNetwork

MODEL = config_of().model
ROOM = EnvSpec(num_obs=9, num_actions=4, reward_values=(-1.0, 0.0, 2.0), width=3, max_episode_steps=5)
SPECS = {
    "room": ROOM,
    "key": ROOM._replace(num_obs=18),
    "bandit": ROOM._replace(num_obs=1, width=0),
    "points": point_game().spec,
}


def numbers_in(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize("world", SPECS)
@pytest.mark.parametrize("tokens", ["transition", "interleaved", "cross"])
def test_a_model_has_as_many_as_counted(tokens: str, world: str) -> None:
    forms = itertools.product(("learned", "rope"), ("cell", "framed"), (True, False), (True, False), (1, 3))
    for position, encoding, timed, induction, layers in forms:
        form = {"tokens": tokens, "position": position, "obs_encoding": encoding, "add_env_time": timed}
        model = replace(MODEL, **form, induction=induction, num_layers=layers)
        assert gpt_parameters(model, SPECS[world]) == numbers_in(GPT(model, SPECS[world]))


@settings(deadline=None)
@given(
    st.integers(1, 6), st.integers(1, 9), st.sampled_from(["expectile", "max"]), st.booleans(), st.sampled_from([0, 1])
)
def test_a_critic_has_twice_as_many_as_counted(
    layers: int, width: int, backup: str, separate: bool, imitation: float
) -> None:
    critic = {"backup": backup, "separate_value": separate, "imitation_scaling": imitation}
    config = config_of(critic=critic, decoder={"num_layers": layers, "ff_dim": width})
    trunk = trunk_config(config.model, config.encoder)
    counted = values_parameters(trunk, config.decoder, config.critic, ROOM)
    assert 2 * counted == numbers_in(fresh_critic(config, ROOM))


@pytest.mark.parametrize("world", SPECS)
def test_learners_have_as_many_as_counted(world: str) -> None:
    spec, seeds = SPECS[world], torch.arange(2)
    network = StackedPointNetwork(spec, 6, 7, seeds) if spec.obs_shape else StackedNetwork(2, spec.num_obs, 6, 7, seeds)
    assert 2 * learner_parameters(spec, 6, 7) == numbers_in(network)


LAYERS = st.builds(
    Layer, st.integers(1, 5), st.sampled_from(["none", "layer", "batch"]), st.just("relu"), st.booleans()
)


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.lists(LAYERS, max_size=4))
def test_a_network_as_listed_has_as_many_as_counted(inputs: int, outputs: int, layers: list[Layer]) -> None:
    assert net_parameters(inputs, outputs, layers) == numbers_in(make_network(inputs, outputs, layers))
