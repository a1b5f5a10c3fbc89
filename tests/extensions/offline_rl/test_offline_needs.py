"""Memory that a critic needs in training."""

from collections.abc import Iterable

import pytest
from critics import LENGTH, SPEC, config_of, fresh_critic
from torch import Tensor

from icrl.app.compose import compose_config
from icrl.envs import make_env
from icrl.extensions.offline_rl.critic import trunk_config
from icrl.extensions.offline_rl.needs import critic_training
from icrl.extensions.offline_rl.options import OfflineConfig
from icrl.runs.device import Need

STATE = "parameters, gradients and the optimizer's state"


def size(found: list[Need], what: str) -> int:
    return next(need.size for need in found if need.what == what)


def bytes_of(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@pytest.mark.parametrize("trunk_grad", ["full", "none"])
def test_training_a_critic(trunk_grad: str) -> None:
    config = config_of(critic={"value_trunk_grad": trunk_grad})
    critic = fresh_critic(config)
    found = critic_training(config, trunk_config(config.model, config.encoder), SPEC, 1)
    trained = [parameter for parameter in critic.parameters() if parameter.requires_grad]
    assert size(found, STATE) == bytes_of(critic.parameters()) + 3 * bytes_of(trained)
    heads = 4 * LENGTH * 4 * 4 * config.decoder.ff_dim  # 4 windows, 4 bytes; a hidden layer keeps 4 numbers per unit
    assert (size(found, "activations of a batch") > heads) == (trunk_grad == "full")


def test_a_machine_of_4_gb_runs_every_default() -> None:
    config = compose_config(OfflineConfig, [])
    found = critic_training(config, trunk_config(config.model, config.encoder), make_env(config.env).spec, 1)
    assert sum(need.size for need in found) < 2 * 10**9
