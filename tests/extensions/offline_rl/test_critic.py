"""Critics: outputs, caches, gradients, and the target network that follows."""

import pytest
import torch
from critics import CONFIG, LENGTH, SPEC, batch_of, config_of, critic_of, fresh_critic, shown
from hypothesis import given, settings
from hypothesis import strategies as st
from space_worlds import WORLDS
from torch import Tensor, nn

from icrl.config.options import replace
from icrl.contracts import ConfigError
from icrl.extensions.offline_rl.critic import Head, ValueNetwork, Values, trunk_config
from icrl.nn.gpt import Context
from icrl.spaces import discrete_spec

FORMS = {
    "one trunk": {},
    "two trunks": {"separate_value": True},
    "largest Q": {"backup": "max", "v_loss_scaling": 0.0},
    "with a policy": {"imitation_scaling": 1.0},
    "no gradient": {"value_trunk_grad": "none", "imitation_scaling": 1.0},
}
every_form = pytest.mark.parametrize("form", FORMS)


def tensors(values: Values) -> list[Tensor]:
    return [tensor for tensor in values if tensor is not None]


@every_form
@torch.no_grad()
def test_shapes_and_precision(form: str) -> None:
    critic = critic_of(critic=FORMS[form]).eval()
    values = critic(shown(batch_of()))
    assert values.q.shape == (2, 3, LENGTH, SPEC.num_actions) and values.value.shape == (3, LENGTH)
    assert (values.logits is None) == (not FORMS[form].get("imitation_scaling"))
    with torch.autocast("cpu", torch.bfloat16):
        assert {tensor.dtype for tensor in tensors(critic(shown(batch_of())))} == {torch.float32}
    assert not torch.allclose(values.q[0], values.q[1])
    if FORMS[form].get("backup") == "max":
        assert torch.equal(values.value, values.q.min(0).values.max(-1).values)


def test_the_largest_q_is_that_of_a_legal_action() -> None:
    spec = discrete_spec(4, SPEC.num_actions, SPEC.reward_values, 0, SPEC.max_episode_steps, points=(1, 1))
    critic = fresh_critic(config_of(critic=FORMS["largest Q"]), spec).eval()
    obs = torch.tensor([[[2, 1, *legal] for legal in ((1, 1, 0, 0), (0, 0, 1, 1), (0, 1, 0, 0))]])
    zero = torch.zeros(1, 3, dtype=torch.long)
    values = critic(Context(obs, zero, zero.float(), zero, obs, zero, zero.bool()))
    for t, legal in enumerate(obs[0, :, -4:].bool()):
        assert values.value[0, t] == values.least_q[0, t][legal].max()


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("imitation", [0.0, 1.0])
@pytest.mark.parametrize("trunk_grad", ["full", "none"])
def test_every_parameter_that_requires_grad_gets_one(trunk_grad: str, imitation: float, separate: bool) -> None:
    """Data parallel processes need this."""
    form = {"value_trunk_grad": trunk_grad, "imitation_scaling": imitation, "separate_value": separate}
    critic = critic_of(critic=form)
    torch.stack([tensor.sum() for tensor in tensors(critic(shown(batch_of())))]).sum().backward()
    for name, parameter in critic.named_parameters():
        assert parameter.requires_grad == (parameter.grad is not None), name


def test_a_head_is_linear_layers_with_activation_and_dropout_between() -> None:
    config = replace(CONFIG.decoder, ff_dim=5, activation="relu", dropout=0.3)
    one, three = (Head(replace(config, num_layers=number), 8, 4) for number in (1, 3))
    assert [type(layer) for layer in one] == [nn.Linear]
    assert [type(layer) for layer in three] == [nn.Linear, nn.ReLU, nn.Dropout] * 2 + [nn.Linear] and three[2].p == 0.3
    assert [tuple(layer.weight.shape) for layer in list(three)[::3]] == [(5, 8), (5, 5), (4, 5)]


def test_the_trunk_has_the_form_of_the_encoder_and_the_tokens_of_the_model() -> None:
    encoder = {"position": "sinusoidal", "embed_dim": 12, "num_heads": 3, "ff_dim": 20, "num_layers": 2}
    model = {"tokens": "interleaved", "context_len": 6, "obs_encoding": "coordinates", "activation": "gelu"}
    config = config_of(model=model, encoder=encoder | {"activation": "relu", "dropout": 0.4})
    form = trunk_config(config.model, config.encoder)
    dropouts = dict.fromkeys(("attention_dropout", "residual_dropout", "embedding_dropout"), 0.4)
    assert vars(form) == vars(config.model) | encoder | dropouts | {"activation": "relu"}
    network = ValueNetwork(form, config.decoder, config.critic, SPEC, recompute=True)
    assert network.trunk.tokens_per_step == 3 and network.q_heads[0][0].in_features == 12
    assert network.trunk.transformer.recompute


@every_form
def test_the_target_network_is_a_copy_that_never_trains(form: str) -> None:
    critic = fresh_critic(config_of(critic=FORMS[form]))
    online, target = critic.online.state_dict(), critic.target.state_dict()
    assert online.keys() == target.keys()
    for name, value in online.items():
        assert torch.equal(value, target[name]) and value.data_ptr() != target[name].data_ptr()
    assert not any(parameter.requires_grad for parameter in critic.target.parameters())
    parts = {f"{part}.{name}" for part in ("online", "target") for name in online}
    assert critic.state_dict().keys() == {"updates", *parts}
    for mode in (True, False, True):
        assert critic.train(mode) is critic
        assert {module.training for module in critic.online.modules()} == {mode}
        assert {module.training for module in critic.target.modules()} == {False}


@settings(max_examples=20, deadline=None)
@given(rate=st.floats(0.01, 1), interval=st.integers(1, 4), number=st.integers(1, 9))
def test_the_target_network_follows_at_its_rate_and_interval(rate: float, interval: int, number: int) -> None:
    critic = critic_of(critic={"target_update_rate": rate, "target_update_interval": interval})
    fast, slow = (network.value_head[0].weight.detach() for network in (critic.online, critic.target))
    expected = slow.double()
    for update in range(1, number + 1):
        critic.after_update()
        if update % interval == 0:
            expected = (1 - rate) * expected + rate * fast.double()
    assert critic.state_dict()["updates"] == number
    torch.testing.assert_close(slow.double(), expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(slow, fast) or rate < 1 or number < interval


def test_critics_are_for_integers() -> None:
    message = r"a critic needs Discrete actions, .*; this world has actions in Box.* and any number of rewards"
    with pytest.raises(ConfigError, match=message):
        fresh_critic(CONFIG, WORLDS["vector to arm"])
