"""Models as policies, in a room and in a world with illegal actions, against a slow reference without a cache."""

import itertools

import pytest
import torch
from critics import CONFIG as OFFLINE
from critics import config_of
from masked_env import corridor
from models import outspoken
from policies import (
    CONTEXT_LEN,
    FRACTIONS,
    NUM_STREAMS,
    Recorded,
    assert_frequencies,
    assert_slow,
    assert_slow_past_full_contexts,
    columns_of,
    gpt,
    play,
    slow_logits,
)

from icrl.config.options import replace
from icrl.envs import make_env
from icrl.envs.rollout import rollout, start_streams
from icrl.nn.critic import ValueNetwork, trunk_config
from icrl.nn.gpt import Context, Window, context_of
from icrl.nn.gpt_policy import GPTPolicy, Guided
from icrl.randomness import Noise, stream_seeds

ROOM = make_env(replace(OFFLINE.env, size=4, max_episode_steps=6, random_start=True))
WORLDS = {
    "room": ROOM,
    "mask": corridor(),
}
MASKED = {"obs_encoding": "coordinates"}
TOKENS, POSITIONS = ("transition", "interleaved", "cross"), ("env_time", "learned", "sinusoidal", "rope", "none")
FORMS = [
    *(("room", {"tokens": tokens, "position": position}) for tokens in TOKENS for position in POSITIONS),
    *(("room", {"tokens": tokens, "induction": True, "obs_encoding": "framed"}) for tokens in TOKENS),
    *(("room", {"tokens": tokens, "num_kv_heads": 1, "position": "rope"}) for tokens in TOKENS),
    *(("room", {"tokens": tokens, "trunk": trunk}) for tokens in TOKENS[:2] for trunk in ("delta", "gru")),
    *(("mask", {"tokens": tokens, "position": "rope", **MASKED}) for tokens in TOKENS),
]
CRITICS = {
    "one trunk": {},
    "two trunks": {"critic": {"separate_value": True}, "model": {"tokens": "interleaved", "induction": True}},
    "largest Q": {"critic": {"backup": "max", "v_loss_scaling": 0.0}},
    "with a policy": {"critic": {"imitation_scaling": 1.0}, "model": {"tokens": "cross", "position": "sinusoidal"}},
    "recurrent": {"critic": {"separate_value": True}, "model": {"trunk": "delta", "induction": True}},
    "gru": {"model": {"trunk": "gru"}},
}


def guided(form: str, has_prior: bool) -> Guided:
    config = config_of(**CRITICS[form])
    trunk = trunk_config(config.model, config.encoder)
    critic = outspoken(ValueNetwork(trunk, config.decoder, config.critic, ROOM.spec)).eval()
    return Guided(gpt(ROOM.spec, 0.2, **CRITICS[form].get("model", {})) if has_prior else None, critic, 1.7).eval()


@pytest.mark.parametrize(("world", "form"), FORMS, ids=str)
def test_logits_equal_the_slow_reference_past_full_contexts(world: str, form: dict) -> None:
    assert_slow_past_full_contexts(WORLDS[world], **form)


@pytest.mark.parametrize(("kept", "num_kept"), [(0.01, 1), (0.3, 2), (0.99, 6)])
def test_any_part_of_the_context_may_be_kept(kept: float, num_kept: int) -> None:
    policy = Recorded(gpt(ROOM.spec), kept=kept)
    played = play(policy, ROOM)
    assert_slow(policy, played, num_kept)
    other = slow_logits(policy.model, played, num_kept % 6 + 1)  # the reference can tell the difference
    assert (policy.noted[CONTEXT_LEN] - other[CONTEXT_LEN]).abs().max() > 1e-3


@pytest.mark.parametrize(("std", "epsilon"), FRACTIONS)
@pytest.mark.parametrize("world", WORLDS)
def test_actions_have_the_frequencies_of_the_policy(world: str, std: float, epsilon: float) -> None:
    form = MASKED if world == "mask" else {}
    assert_frequencies(WORLDS[world], std, epsilon, masked=world == "mask", **form)


def test_two_rollouts_equal_one_and_leave_the_model_untouched() -> None:
    """The policy's memory is in its carry; dropout is off. A stream does not depend on the others."""
    model = gpt(ROOM.spec, residual_dropout=0.5).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    policy = GPTPolicy(model, 1.0, 1.0, 0.5)
    whole = play(policy, ROOM)
    for alone, column in zip(play(policy, ROOM, num_streams=2), whole, strict=True):
        assert torch.equal(alone, column[:, :2])
    streams = start_streams(policy, ROOM, ROOM.all_tasks()[:NUM_STREAMS], stream_seeds(0, NUM_STREAMS))
    noise, done = Noise(stream_seeds(1, NUM_STREAMS)), 0
    for length in (3, 9, 12):
        transitions, streams = rollout(policy, ROOM, streams, length, noise)
        for column, piece in zip(whole, transitions, strict=True):
            assert torch.equal(column[done : done + length], piece)
        done += length
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


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


@pytest.mark.parametrize("form", ["two trunks", "recurrent", "gru"])
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
