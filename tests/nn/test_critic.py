"""Networks of values: what they read, how the slow copy follows, and what is whose."""

import dataclasses
from typing import Any

import pytest
import torch
from critics import CONFIG, LENGTH, SPEC, batch_of, config_of, critic_of, fresh_critic, shown
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from icrl.config.options import replace
from icrl.config.root import ModelConfig
from icrl.nn.critic import Head, ValueNetwork, Values, trunk_config
from icrl.nn.gpt import Context

FORMS: dict[str, dict[str, Any]] = {
    "one trunk": {},
    "two trunks": {"separate_value": True},
    "largest Q": {"backup": "max", "v_loss_scaling": 0.0},
    "with a policy": {"imitation_scaling": 1.0},
    "no gradient": {"value_trunk_grad": "none", "imitation_scaling": 1.0},
}
every_form = pytest.mark.parametrize("form", FORMS)


def tensors(values: Values) -> list[torch.Tensor]:
    return [tensor for tensor in values if tensor is not None]


@every_form
@torch.no_grad()
def test_shapes_and_what_is_there(form: str) -> None:
    critic = critic_of(critic=FORMS[form]).eval()
    values = critic(shown(batch_of()))
    assert values.q.shape == (2, 3, LENGTH, SPEC.num_actions)
    assert values.value.shape == (3, LENGTH)
    assert (values.logits is None) == (not FORMS[form].get("imitation_scaling"))
    assert {tensor.dtype for tensor in tensors(values)} == {torch.float32}
    with torch.autocast("cpu", torch.bfloat16):
        assert {tensor.dtype for tensor in tensors(critic(shown(batch_of())))} == {torch.float32}
    assert not torch.allclose(values.q[0], values.q[1])
    if FORMS[form].get("backup") == "max":
        assert torch.equal(values.value, values.q.min(0).values.max(-1).values)
    assert torch.equal(values.least_q, torch.minimum(*values.q))
    for row, t, action in ((0, 0, 0), (2, 4, 3)):
        expected = min(values.q[:, row, t, action].tolist()) - float(values.value[row, t])
        assert values.advantage[row, t, action].item() == pytest.approx(expected, abs=1e-6)


@every_form
@torch.no_grad()
def test_values_do_not_see_what_comes_later(form: str) -> None:
    critic, batch = critic_of(critic=FORMS[form]).eval(), batch_of()
    before, at = critic(shown(batch)), 3
    later = batch._replace(
        obs=batch.obs.clone(), action=batch.action.clone(), reward=batch.reward.clone(), timestep=batch.timestep.clone()
    )
    later.obs[:, at + 1 :] = (later.obs[:, at + 1 :] + 1) % SPEC.num_obs
    later.action[:, at:] = (later.action[:, at:] + 1) % SPEC.num_actions
    later.reward[:, at:] = (later.reward[:, at:] + 1) % SPEC.num_rewards
    later.timestep[:, at + 1 :] = (later.timestep[:, at + 1 :] + 1) % SPEC.max_episode_steps
    for one, other in zip(tensors(before), tensors(critic(shown(later))), strict=True):
        time = 2 if one.ndim == 4 else 1
        early = torch.arange(at + 1)
        torch.testing.assert_close(one.index_select(time, early), other.index_select(time, early))
        assert not torch.allclose(one, other, atol=1e-3)


@every_form
@pytest.mark.parametrize("tokens", ["transition", "interleaved", "cross"])
@torch.no_grad()
def test_steps_through_the_caches_equal_one_forward(form: str, tokens: str) -> None:
    critic = critic_of(critic=FORMS[form], model={"tokens": tokens, "induction": True}).eval()
    context, network = shown(batch_of()), critic.online
    expected = network(context)
    for lengths in ([1] * LENGTH, [3, 1, LENGTH - 4]):
        caches, start = network.new_caches(3), 0
        for length in lengths:
            part = Context(*(column[:, start : start + length] for column in context))
            for got, whole in zip(tensors(network(part, caches)), tensors(expected), strict=True):
                time = 2 if whole.ndim == 4 else 1
                torch.testing.assert_close(got, whole.narrow(time, start, length), atol=1e-4, rtol=1e-4)
            start += length


def test_v_has_a_trunk_of_its_own_where_it_should() -> None:
    for separate in (False, True):
        critic = critic_of(critic={"separate_value": separate})
        critic(shown(batch_of())).value.sum().backward()
        q_trunk = critic.online.trunk.prev_action.weight.grad
        assert (q_trunk is None) == separate
        if separate:
            assert critic.online.value_trunk is not None
            assert critic.online.value_trunk.prev_action.weight.grad.any()


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("imitation", [0.0, 1.0])
@pytest.mark.parametrize("trunk_grad", ["full", "none"])
def test_every_parameter_that_asks_for_a_gradient_gets_one(trunk_grad: str, imitation: float, separate: bool) -> None:
    """As data parallel processes need it."""
    form = {"value_trunk_grad": trunk_grad, "imitation_scaling": imitation, "separate_value": separate}
    critic = critic_of(critic=form)
    torch.stack([tensor.sum() for tensor in tensors(critic(shown(batch_of())))]).sum().backward()
    for name, parameter in critic.named_parameters():
        assert parameter.requires_grad == (parameter.grad is not None), name
    learns = {name.split(".")[1] for name, parameter in critic.named_parameters() if parameter.requires_grad}
    trunks = {"trunk", "value_trunk"} if separate else {"trunk"}
    expected = trunks if trunk_grad == "full" else trunks & {"trunk"} if imitation else set()
    assert learns & {"trunk", "value_trunk"} == expected


def test_a_head_is_linear_layers_with_activation_and_dropout_between() -> None:
    config = replace(CONFIG.decoder, ff_dim=5, activation="relu", dropout=0.3)

    def kinds(num_layers: int) -> list[type[nn.Module]]:
        head = Head(replace(config, num_layers=num_layers), 8, 4)
        assert (head[0].in_features, head[-1].out_features) == (8, 4)
        return [type(layer) for layer in head]

    between = [nn.Linear, nn.ReLU, nn.Dropout]
    assert kinds(1) == [nn.Linear]
    assert kinds(2) == [*between, nn.Linear]
    assert kinds(3) == [*between, *between, nn.Linear]
    head = Head(replace(config, num_layers=3, activation="gelu"), 8, 4)
    assert [tuple(layer.weight.shape) for layer in head if isinstance(layer, nn.Linear)] == [(5, 8), (5, 5), (4, 5)]
    assert isinstance(head[1], nn.GELU) and head[2].p == 0.3


def test_the_trunk_has_the_form_of_the_encoder_and_the_tokens_of_the_model() -> None:
    config = config_of(
        model={"tokens": "interleaved", "context_len": 6, "obs_encoding": "coordinates", "activation": "gelu"},
        encoder={
            "position": "sinusoidal",
            "embed_dim": 12,
            "num_heads": 3,
            "ff_dim": 20,
            "activation": "relu",
            "dropout": 0.4,
            "num_layers": 2,
        },
    )
    form = trunk_config(config.model, config.encoder)
    expected = {"position": "sinusoidal", "embed_dim": 12, "num_heads": 3, "ff_dim": 20, "num_layers": 2}
    dropouts = dict.fromkeys(("attention_dropout", "residual_dropout", "embedding_dropout"), 0.4)
    assert form == replace(config.model, **expected, **dropouts, activation="relu")
    kept = {"tokens", "context_len", "obs_encoding", "max_size", "induction", "add_env_time"}
    changed = {*expected, *dropouts, "activation"}
    assert kept | changed == {field.name for field in dataclasses.fields(ModelConfig)}
    network = ValueNetwork(form, config.decoder, config.critic, SPEC)
    assert network.trunk.tokens_per_step == 3 and network.q_heads[0][0].in_features == 12


# ---- the slow copy


@every_form
def test_the_slow_copy_is_the_network_at_the_start_and_shares_nothing_with_it(form: str) -> None:
    critic = fresh_critic(config_of(critic=FORMS[form]))
    online, slow = critic.online.state_dict(), critic.target.state_dict()
    assert online.keys() == slow.keys()
    for name, value in online.items():
        assert torch.equal(value, slow[name]) and value.data_ptr() != slow[name].data_ptr()
    assert not any(parameter.requires_grad for parameter in critic.target.parameters())
    assert all(parameter.requires_grad for parameter in critic.online.parameters())
    assert critic.state_dict().keys() == {
        "updates",
        *(f"{part}.{name}" for part in ("online", "target") for name in online),
    }


def test_the_slow_copy_never_trains() -> None:
    critic = fresh_critic()
    for mode in (True, False, True):
        assert critic.train(mode) is critic
        assert {module.training for module in critic.online.modules()} == {mode}
        assert {module.training for module in critic.target.modules()} == {False}


@settings(max_examples=20, deadline=None)
@given(rate=st.floats(0.01, 1), interval=st.integers(1, 4), number=st.integers(1, 9))
def test_the_slow_copy_follows_at_its_rate_every_so_many_updates(rate: float, interval: int, number: int) -> None:
    critic = critic_of(critic={"target_update_rate": rate, "target_update_interval": interval})
    fast, slow = (network.value_head[0].weight.detach() for network in (critic.online, critic.target))
    expected = slow.double()
    for update in range(1, number + 1):
        critic.after_update()
        if update % interval == 0:
            expected = (1 - rate) * expected + rate * fast.double()
    assert critic.updates == number
    torch.testing.assert_close(slow.double(), expected, atol=1e-5, rtol=1e-5)
    if rate == 1 and number >= interval:
        assert torch.equal(slow, fast)


def test_a_rate_of_one_copies_to_the_bit() -> None:
    critic = critic_of(critic={"target_update_rate": 1.0})
    critic.after_update()
    for slow, fast in zip(critic.target.parameters(), critic.online.parameters(), strict=True):
        assert torch.equal(slow, fast) and not slow.requires_grad


def test_the_count_of_updates_survives_in_the_state() -> None:
    critic, other = (critic_of(critic={"target_update_interval": 3, "target_update_rate": 1.0}) for _ in range(2))
    for _ in range(2):
        critic.after_update()
    other.load_state_dict(critic.state_dict())
    other.after_update()
    assert torch.equal(other.target.value_head[0].weight, other.online.value_head[0].weight)


def test_recomputed_blocks_give_the_same_gradient() -> None:
    gradients = []
    for recompute in (False, True):
        critic = critic_of(encoder={"dropout": 0.2}, critic={"separate_value": True})
        for trunk in (critic.online.trunk, critic.online.value_trunk):
            assert trunk is not None
            trunk.transformer.recompute = recompute
        torch.manual_seed(0)
        values = critic(shown(batch_of()))
        (values.q.sum() + values.value.sum()).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in critic.online.parameters() if p.grad is not None]))
    assert torch.equal(*gradients)
    config = config_of()
    form = trunk_config(config.model, config.encoder)
    assert ValueNetwork(form, config.decoder, config.critic, SPEC, recompute=True).trunk.transformer.recompute
