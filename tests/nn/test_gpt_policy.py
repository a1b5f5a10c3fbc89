"""The model as a policy, in a real room, against a slow reference that keeps plain lists and no cache.

The reference knows one rule: a context that holds `context_len` steps starts anew with the newest `num_kept` of them.
"""

import itertools

import pytest
import torch
from models import outspoken
from torch import Tensor

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.contracts import Rollout, Step
from icrl.envs import make_env
from icrl.envs.rollout import rollout, start_streams
from icrl.nn.gpt import GPT, context_of
from icrl.nn.gpt_policy import GPTCarry, GPTPolicy
from icrl.randomness import Noise, stream_seeds

CONFIG = load_config()
ENV = make_env(replace(CONFIG.env, size=4, max_episode_steps=6, random_start=True))
CONTEXT_LEN, NUM_STREAMS, NUM_STEPS = 10, 5, 34


def gpt(**form: str | bool | float) -> GPT:
    config = replace(
        CONFIG.model, context_len=CONTEXT_LEN, embed_dim=16, num_layers=2, num_heads=2, ff_dim=32, **form
    )
    model = GPT(config, ENV.spec)
    return outspoken(model)


class Spied(GPTPolicy):
    """Notes the logits of every step."""

    def __init__(self, model: GPT, epsilon: float = 1.0, temperature: float = 1.0, kept: float = 0.5) -> None:
        super().__init__(model, epsilon, temperature, kept)
        self.noted: list[Tensor] = []

    def logits(self, carry: GPTCarry, step: Step) -> tuple[Tensor, GPTCarry]:
        logits, carry = super().logits(carry, step)
        self.noted.append(logits)
        return logits, carry


def play(policy: GPTPolicy, num_steps: int = NUM_STEPS, num_streams: int = NUM_STREAMS) -> Rollout:
    tasks = ENV.all_tasks()[:num_streams]
    streams = start_streams(policy, ENV, tasks, stream_seeds(0, num_streams))
    return rollout(policy, ENV, streams, num_steps, Noise(stream_seeds(1, num_streams)))[0]


@torch.no_grad()
def slow_logits(model: GPT, transitions: Rollout, num_kept: int) -> list[Tensor]:
    """At each step one forward over the whole context, `[B, A]` each."""
    columns = [getattr(transitions, name).T for name in ("obs", "action", "reward", "timestep")]
    start, logits = 0, []
    for t in range(transitions.obs.shape[0]):
        if t - start == CONTEXT_LEN:
            start = t - num_kept
        context = context_of(ENV.spec, *(column[:, start : t + 1] for column in columns))
        logits.append(model(context)[:, -1])
    return logits


FORMS = list(
    itertools.product(
        ("transition", "interleaved", "cross"),
        ("env_time", "learned", "sinusoidal", "rope", "none"),
        ("cell", "framed"),
        (False, True),
    )
)


@pytest.mark.parametrize(("tokens", "position", "obs_encoding", "induction"), FORMS)
def test_logits_equal_the_slow_reference_past_full_contexts(
    tokens: str, position: str, obs_encoding: str, induction: bool
) -> None:
    policy = Spied(gpt(tokens=tokens, position=position, obs_encoding=obs_encoding, induction=induction))
    transitions = play(policy)
    ends = transitions.terminated | transitions.truncated
    assert transitions.terminated.any() and (ends.any(dim=1) & ~ends.all(dim=1)).any()  # at different times
    for got, expected in zip(policy.noted, slow_logits(policy.model, transitions, 5), strict=True):
        assert torch.allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize(("kept", "num_kept"), [(0.01, 1), (0.3, 3), (0.75, 7), (0.99, 9)])
def test_any_part_of_the_context_may_be_kept(kept: float, num_kept: int) -> None:
    policy = Spied(gpt(), kept=kept)
    transitions = play(policy)
    for got, expected in zip(policy.noted, slow_logits(policy.model, transitions, num_kept), strict=True):
        assert torch.allclose(got, expected, atol=1e-5)


def test_a_rebuilt_context_differs_from_an_endless_one() -> None:
    """The reference can tell the semantics apart: another number of kept steps gives other logits, after a rebuild."""
    policy = Spied(gpt())
    transitions = play(policy)
    other = slow_logits(policy.model, transitions, 6)
    moved = [(got - expected).abs().max() > 1e-3 for got, expected in zip(policy.noted, other, strict=True)]
    assert not any(moved[:CONTEXT_LEN]) and moved[CONTEXT_LEN]


def test_sampled_actions_invert_the_distribution_at_the_temperature() -> None:
    for temperature in (0.3, 1.0, 4.0):
        policy = Spied(gpt(), temperature=temperature)
        transitions = play(policy)
        noise = Noise(stream_seeds(1, NUM_STREAMS)).draw(NUM_STEPS)
        for t, stream in itertools.product(range(NUM_STEPS), range(NUM_STREAMS)):
            probabilities = (policy.noted[t][stream] / temperature).softmax(-1).tolist()
            below, expected = 0.0, 0
            while below + probabilities[expected] <= noise[t, stream] and expected < ENV.spec.num_actions - 1:
                below += probabilities[expected]
                expected += 1
            assert transitions.action[t, stream] == expected


def test_greedy_takes_the_most_likely_action_whatever_the_noise() -> None:
    policy = Spied(gpt(), epsilon=0.0)
    transitions = play(policy)
    assert torch.equal(transitions.action, torch.stack(policy.noted).argmax(-1))
    sampled = play(Spied(gpt()))
    assert not torch.equal(transitions.action, sampled.action)


def test_between_greedy_and_sampled_the_policy_is_drawn_from_with_probability_epsilon() -> None:
    """Over many streams in one state, each action as often as epsilon * p + (1 - epsilon) * 1[a = argmax] says."""
    model, epsilon, number = gpt(), 0.3, 20_000
    policy = Spied(model, epsilon=epsilon)
    _, one = ENV.reset(ENV.all_tasks()[:1], torch.arange(1))
    step = Step(*(column.expand(number) for column in one))
    action, _ = policy.act(policy.initial_carry(number), step, torch.rand(number, generator=torch.Generator()))
    probabilities = policy.noted[0][0].softmax(-1)
    expected = epsilon * probabilities
    expected[probabilities.argmax()] += 1 - epsilon
    frequency = torch.bincount(action, minlength=ENV.spec.num_actions) / number
    assert (frequency - expected).abs().max() < 0.01


def test_a_stream_does_not_depend_on_the_others() -> None:
    few, many = play(Spied(gpt()), num_streams=2), play(Spied(gpt()))
    for ours, theirs in zip(few, many, strict=True):
        assert torch.equal(ours, theirs[:, :2])


def test_two_rollouts_equal_one_and_leave_the_model_untouched() -> None:
    """What the policy knows is in the carry: the same object plays two lives one after the other."""
    model = gpt()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    policy = GPTPolicy(model, 1.0, 1.0, 0.5)
    whole = play(policy)
    streams = start_streams(policy, ENV, ENV.all_tasks()[:NUM_STREAMS], stream_seeds(0, NUM_STREAMS))
    noise, parts = Noise(stream_seeds(1, NUM_STREAMS)), []
    for length in (3, 9, 22):
        transitions, streams = rollout(policy, ENV, streams, length, noise)
        parts.append(transitions)
    for column, *pieces in zip(whole, *parts, strict=True):
        assert torch.equal(column, torch.cat(pieces))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_dropout_is_off() -> None:
    model = gpt(residual_dropout=0.5).train()
    policy = Spied(model)
    transitions = play(policy)
    expected = slow_logits(gpt().eval(), transitions, 5)
    assert torch.allclose(policy.noted[20], expected[20], atol=1e-5)
