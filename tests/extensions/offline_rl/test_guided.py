"""Models that a critic guides."""

import itertools

import pytest
import torch
from critics import config_of
from models import outspoken
from policies import (
    CONTEXT_LEN,
    NUM_STREAMS,
    Recorded,
    assert_slow,
    columns_of,
    gpt,
    play,
)
from small_models import CONFIG

from icrl import extensions
from icrl.config.options import replace
from icrl.envs import make_env
from icrl.extensions.offline_rl.acting import Guided
from icrl.extensions.offline_rl.critic import ValueNetwork, trunk_config
from icrl.nn.gpt import Context, Window, context_of

ROOM = make_env(replace(CONFIG.env, size=4, max_episode_steps=6, random_start=True))
CRITICS = {
    "one trunk": {},
    "two trunks": {"critic": {"separate_value": True}, "model": {"tokens": "interleaved", "induction": True}},
    "largest Q": {"critic": {"backup": "max", "v_loss_scaling": 0.0}},
    "with a policy": {"critic": {"imitation_scaling": 1.0}, "model": {"tokens": "cross", "position": "sinusoidal"}},
}
if "recurrent" in extensions.NAMES:
    CRITICS["delta"] = {"critic": {"separate_value": True}, "model": {"trunk": "delta", "induction": True}}
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
