"""Models as policies, in a room and in the point game, against a slow reference without a cache."""

import itertools

import pytest
import torch
from critics import CONFIG as OFFLINE
from critics import config_of
from masked_env import corridor
from models import outspoken
from point_worlds import point_game
from torch import Tensor

from icrl.config.options import replace
from icrl.contracts import Rollout, Step
from icrl.envs import make_env
from icrl.envs.rollout import rollout, start_streams
from icrl.nn.critic import ValueNetwork, trunk_config
from icrl.nn.gpt import GPT, Context, Window, context_of
from icrl.nn.gpt_policy import GPTCarry, GPTPolicy, Guided
from icrl.randomness import Noise, stream_seeds

CONTEXT_LEN, NUM_STREAMS, NUM_STEPS = 7, 5, 24
ROOM = make_env(replace(OFFLINE.env, size=4, max_episode_steps=6, random_start=True))
WORLDS = {
    "room": ROOM,
    "host": point_game(opponents=["table_3", "random", "last", "first@0.5", "order_120"], dimensions=[3, 2]),
    "mask": corridor(),
    "agent": point_game(role="agent", opponents=["zeillinger", "random_pair", "weak_spivakovsky", "random_subset"]),
}
TOKENS, POSITIONS = ("transition", "interleaved", "cross"), ("env_time", "learned", "sinusoidal", "rope", "none")
FORMS = [
    *(("room", {"tokens": tokens, "position": position}) for tokens in TOKENS for position in POSITIONS),
    *(("room", {"tokens": tokens, "induction": True, "obs_encoding": "framed"}) for tokens in TOKENS),
    *(("room", {"tokens": tokens, "num_kv_heads": 1, "position": "rope"}) for tokens in TOKENS),
    *(("room", {"tokens": tokens, "trunk": trunk}) for tokens in TOKENS[:2] for trunk in ("delta", "gru")),
    *(("host", {"trunk": trunk, "position": "sinusoidal"}) for trunk in ("delta", "gru")),
    *(("host", {"tokens": tokens, "position": "sinusoidal"}) for tokens in TOKENS),
    *(("agent", {"tokens": tokens, "position": "rope"}) for tokens in TOKENS),
    *(("mask", {"tokens": tokens, "position": "rope"}) for tokens in TOKENS),
]
CRITICS = {
    "one trunk": {},
    "two trunks": {"critic": {"separate_value": True}, "model": {"tokens": "interleaved", "induction": True}},
    "largest Q": {"critic": {"backup": "max", "v_loss_scaling": 0.0}},
    "with a policy": {"critic": {"imitation_scaling": 1.0}, "model": {"tokens": "cross", "position": "sinusoidal"}},
    "recurrent": {"critic": {"separate_value": True}, "model": {"trunk": "delta", "induction": True}},
    "gru": {"model": {"trunk": "gru"}},
}


def gpt(world: str = "room", std: float = 0.3, **form) -> GPT:
    fitting = {"obs_encoding": "coordinates"} if world == "mask" else {}
    return outspoken(GPT(replace(OFFLINE.model, **fitting | form), WORLDS[world].spec), std).eval()


def guided(form: str, has_prior: bool) -> Guided:
    config = config_of(**CRITICS[form])
    trunk = trunk_config(config.model, config.encoder)
    critic = outspoken(ValueNetwork(trunk, config.decoder, config.critic, ROOM.spec)).eval()
    return Guided(gpt("room", 0.2, **CRITICS[form].get("model", {})) if has_prior else None, critic, 1.7).eval()


class Recorded(GPTPolicy):
    """A policy that keeps the logits of every step."""

    def __init__(self, model: GPT | Guided, epsilon: float = 1.0, temperature: float = 1.0, kept: float = 0.5) -> None:
        super().__init__(model, epsilon, temperature, kept)
        self.noted = []

    def logits(self, carry: GPTCarry, step: Step) -> tuple[Tensor, GPTCarry]:
        logits, carry = super().logits(carry, step)
        self.noted.append(logits)
        return logits, carry


def play(policy, world: str = "room", num_steps: int = NUM_STEPS, num_streams: int = NUM_STREAMS) -> Rollout:
    env = WORLDS[world]
    tasks = env.all_tasks().repeat(-(-num_streams // len(env.all_tasks())), 1)[:num_streams]
    streams = start_streams(policy, env, tasks, stream_seeds(0, num_streams))
    return rollout(policy, env, streams, num_steps, Noise(stream_seeds(1, num_streams)))[0]


def columns_of(played: Rollout) -> list[Tensor]:
    return [getattr(played, name).transpose(0, 1) for name in ("obs", "action", "reward", "timestep")]


@torch.no_grad()
def slow_logits(model: GPT | Guided, played: Rollout, num_kept: int) -> list[Tensor]:
    """Logits `[B, A]` at each step, by one forward over the context. A full one begins again with its newest steps."""
    start, logits = 0, []
    for t in range(len(played.obs)):
        start = t - num_kept if t - start == CONTEXT_LEN else start
        context = context_of(Window(*(column[:, start : t + 1] for column in columns_of(played))))
        logits.append(model(context)[:, -1])
    return logits


def assert_slow(policy: Recorded, played: Rollout, num_kept: int = 3) -> None:
    for got, expected in zip(policy.noted, slow_logits(policy.model, played, num_kept), strict=True):
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("world", "form"), FORMS, ids=str)
def test_logits_equal_the_slow_reference_past_full_contexts(world: str, form: dict) -> None:
    policy = Recorded(gpt(world, **form))
    played = play(policy, world)
    assert_slow(policy, played)
    ends = played.terminated | played.truncated
    assert (ends.any(dim=1) & ~ends.all(dim=1)).any()  # at different times
    legal = WORLDS[world].spec.legal(played.obs)
    assert legal is None or legal.gather(-1, played.action[..., None]).all()


@pytest.mark.parametrize(("kept", "num_kept"), [(0.01, 1), (0.3, 2), (0.99, 6)])
def test_any_part_of_the_context_may_be_kept(kept: float, num_kept: int) -> None:
    policy = Recorded(gpt(), kept=kept)
    played = play(policy)
    assert_slow(policy, played, num_kept)
    other = slow_logits(policy.model, played, num_kept % 6 + 1)  # the reference can tell the difference
    assert (policy.noted[CONTEXT_LEN] - other[CONTEXT_LEN]).abs().max() > 1e-3


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("std", [0.1, 30.0])
@pytest.mark.parametrize("world", WORLDS)
def test_actions_have_the_frequencies_of_the_policy(world: str, std: float, epsilon: float) -> None:
    """Over many streams in one state: epsilon * p + (1 - epsilon) * 1[a = argmax], p over the legal actions, even with
    logits in the thousands and a strong preference for illegal ones."""
    env, number, model = WORLDS[world], 20_000, gpt(world, std)
    _, one = env.reset(env.all_tasks()[-3:-2], torch.arange(1))
    legal = env.spec.legal_of(torch.zeros(1, env.spec.num_actions), one.obs)[0] == 0
    assert legal.all() == (world == "room")
    with torch.no_grad():
        model.policy_head.bias[~legal] += 100 * max(std, 1) ** 2
    policy = Recorded(model, epsilon, 0.7)
    step = Step(*(column.expand(number, *column.shape[1:]) for column in one))
    action, _ = policy.act(policy.initial_carry(number), step, torch.rand(number, generator=torch.Generator()))
    assert legal.all() or not legal[policy.noted[0][0].argmax()]
    logits = policy.noted[0][0].masked_fill(~legal, -torch.inf)
    expected = epsilon * (logits / 0.7).softmax(-1)
    expected[logits.argmax()] += 1 - epsilon
    frequency = torch.bincount(action, minlength=env.spec.num_actions) / number
    assert (frequency - expected).abs().max() < 0.015 and not frequency[~legal].any()


def test_two_rollouts_equal_one_and_leave_the_model_untouched() -> None:
    """The policy's memory is in its carry; dropout is off. A stream does not depend on the others."""
    model = gpt(residual_dropout=0.5).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    policy = GPTPolicy(model, 1.0, 1.0, 0.5)
    whole = play(policy)
    for alone, column in zip(play(policy, num_streams=2), whole, strict=True):
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
    played = play(policy)
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
    columns = columns_of(play(Recorded(model)))
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
