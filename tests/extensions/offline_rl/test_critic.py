"""Critics: outputs, caches, gradients, and the target network that follows."""

import itertools

import pytest
import torch
from critics import CONFIG, LENGTH, SPEC, batch_of, config_of, critic_of, fresh_critic, shown
from installed import INDUCTION, needs
from models import outspoken
from policies import CONTEXT_LEN, NUM_STREAMS, Recorded, assert_slow, columns_of, gpt, play
from space_worlds import WORLDS
from torch import Tensor, nn

from icrl import extensions
from icrl.config.options import replace
from icrl.contracts import ConfigError
from icrl.envs import make_env
from icrl.extensions.offline_rl.acting import Guided
from icrl.extensions.offline_rl.critic import ValueNetwork, Values, trunk_config
from icrl.nn.gpt import Context, Window, context_of
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


@needs("vectors")
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


def test_the_networks_have_the_form_of_encoder_and_decoder_and_the_tokens_of_the_model() -> None:
    encoder = {"position": "sinusoidal", "embed_dim": 12, "num_heads": 3, "ff_dim": 20, "num_layers": 2}
    model = {"tokens": "interleaved", "context_len": 6, "obs_encoding": "coordinates"}
    decoder = {"num_layers": 2, "ff_dim": 5, "dropout": 0.3}
    config = config_of(model=model, encoder=encoder | {"dropout": 0.4}, decoder=decoder)
    form = trunk_config(config.model, config.encoder)
    dropouts = dict.fromkeys(("attention_dropout", "residual_dropout", "embedding_dropout"), 0.4)
    assert vars(form) == vars(config.model) | encoder | dropouts
    network = ValueNetwork(form, config.decoder, config.critic, SPEC, recompute=True)
    assert network.trunk.tokens_per_step == 3 and network.trunk.transformer.recompute
    first, activation, dropout, last = network.q_heads[0]
    assert isinstance(activation, nn.GELU) and dropout.p == 0.3
    assert [tuple(layer.weight.shape) for layer in (first, last)] == [(5, 12), (SPEC.num_actions, 5)]


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


def test_critics_are_for_integers() -> None:
    message = r"a critic needs Discrete actions, .*; this world has actions in Box.* and any number of rewards"
    with pytest.raises(ConfigError, match=message):
        fresh_critic(CONFIG, WORLDS["vector to arm"])


# ---- models that a critic guides

ROOM = make_env(replace(CONFIG.env, size=4, max_episode_steps=6, random_start=True))
CRITICS = {
    "one trunk": {},
    "two trunks": {"critic": {"separate_value": True}, "model": {"tokens": "interleaved", "induction": INDUCTION[-1]}},
    "largest Q": {"critic": {"backup": "max", "v_loss_scaling": 0.0}},
    "with a policy": {"critic": {"imitation_scaling": 1.0}, "model": {"tokens": "cross", "position": "sinusoidal"}},
}
if "recurrent" in extensions.NAMES:
    CRITICS["delta"] = {"critic": {"separate_value": True}, "model": {"trunk": "delta", "induction": INDUCTION[-1]}}
    CRITICS["gru"] = {"model": {"trunk": "gru"}}


def guided(form: str, has_prior: bool) -> Guided:
    config = config_of(**CRITICS[form])
    trunk = trunk_config(config.model, config.encoder)
    critic = outspoken(ValueNetwork(trunk, config.decoder, config.critic, ROOM.spec)).eval()
    return Guided(gpt(ROOM.spec, 0.2, **CRITICS[form].get("model", {})) if has_prior else None, critic, 1.7).eval()


@pytest.mark.parametrize("has_prior", [False, True])
@pytest.mark.parametrize("form", CRITICS)
def test_guided_logits_are_the_priors_and_the_scaled_advantages(form: str, has_prior: bool) -> None:
    """The logits through the caches are those of the slow reference."""
    model = guided(form, has_prior)
    policy = Recorded(model)
    played = play(policy, ROOM)
    assert_slow(policy, played)
    context = context_of(Window(*(column[:, :CONTEXT_LEN] for column in columns_of(played))))
    with torch.no_grad():
        got, values = model(context), model.critic(context)
        before = model.prior(context) if model.prior else values.logits
    for row, t, action in itertools.product(range(NUM_STREAMS), range(CONTEXT_LEN), range(ROOM.spec.num_actions)):
        expected = 1.7 * (min(values.q[:, row, t, action].tolist()) - float(values.value[row, t]))
        expected += 0.0 if before is None else float(before[row, t, action])
        assert got[row, t, action].item() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("form", ["two trunks", *(one for one in ("delta", "gru") if one in CRITICS)])
@torch.no_grad()
def test_streams_of_a_cache_are_replaced_with_their_memory(form: str) -> None:
    model, some = guided(form, has_prior=True), torch.tensor([1, 3])
    columns = columns_of(play(Recorded(model), ROOM))
    one, other = (context_of(Window(*(column[:, at : at + 3] for column in columns))) for at in (0, 4))
    mixed, kept, theirs = (model.new_cache(size) for size in (NUM_STREAMS, NUM_STREAMS, 2))
    model(one, mixed)
    model(one, kept)
    model(Context(*(column[some] for column in other)), theirs)
    mixed.replace(some, theirs)
    newest = Context(*(column[:, -1:] for column in other))
    expected = model(newest, kept)
    expected[some] = model(Context(*(column[some] for column in newest)), theirs)
    torch.testing.assert_close(model(newest, mixed), expected)
