"""A policy that values guide: its logits by loops, and that its caches change nothing."""

from typing import Any, cast

import pytest
import torch
from critics import CONFIG, LENGTH, batch_of, config_of, shown
from models import outspoken
from torch import Tensor

from icrl.config.options import replace
from icrl.contracts import Rollout, Step
from icrl.envs import make_env
from icrl.envs.rollout import rollout, start_streams
from icrl.evaluation.probes import Rewritten, shuffled
from icrl.nn.critic import ValueNetwork, trunk_config
from icrl.nn.gpt import GPT, OBS, context_in, context_of
from icrl.nn.gpt_policy import GPTCarry, GPTPolicy
from icrl.nn.guided import Guided
from icrl.randomness import Noise, stream_seeds

ENV = make_env(replace(CONFIG.env, size=4, max_episode_steps=6, random_start=True))
NUM_STREAMS, NUM_STEPS = 5, 3 * LENGTH

FORMS: dict[str, dict[str, dict[str, Any]]] = {
    "one trunk": {},
    "two trunks": {"critic": {"separate_value": True}},
    "largest Q": {"critic": {"backup": "max", "v_loss_scaling": 0.0}},
    "with a policy": {"critic": {"imitation_scaling": 1.0}},
    "two trunks of three tokens": {
        "critic": {"separate_value": True},
        "model": {"tokens": "interleaved", "induction": True},
    },
    "cross": {"model": {"tokens": "cross", "induction": True, "position": "sinusoidal"}},
}


def network(form: str) -> ValueNetwork:
    config = config_of(**FORMS[form])
    model = trunk_config(config.model, config.encoder)
    return outspoken(ValueNetwork(model, config.decoder, config.critic, ENV.spec)).eval()


def prior(form: str) -> GPT:
    return outspoken(GPT(config_of(**FORMS[form]).model, ENV.spec), 0.2).eval()


def guided(form: str, has_prior: bool, scale: float = 1.7) -> Guided:
    return Guided(prior(form) if has_prior else None, network(form), scale).eval()


class Spied(GPTPolicy):
    """Notes the logits of every step."""

    def __init__(self, model: GPT | Guided) -> None:
        super().__init__(model, 1.0, 1.0, 0.5)
        self.noted: list[Tensor] = []

    def logits(self, carry: GPTCarry, step: Step) -> tuple[Tensor, GPTCarry]:
        logits, carry = super().logits(carry, step)
        self.noted.append(logits)
        return logits, carry


def play(policy: Any, num_steps: int = NUM_STEPS) -> Rollout:
    streams = start_streams(policy, ENV, ENV.all_tasks()[:NUM_STREAMS], stream_seeds(0, NUM_STREAMS))
    return rollout(policy, ENV, streams, num_steps, Noise(stream_seeds(1, NUM_STREAMS)))[0]


def columns_of(transitions: Rollout) -> list[Tensor]:
    return [getattr(transitions, name).T for name in ("obs", "action", "reward", "timestep")]


@pytest.mark.parametrize("has_prior", [False, True])
@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_logits_are_the_priors_and_the_scaled_advantages(form: str, has_prior: bool) -> None:
    model, scale = guided(form, has_prior), 1.7
    context = context_of(ENV.spec, *columns_of(play(GPTPolicy(prior(form), 1.0, 1.0, 0.5), LENGTH)))
    got, values = model(context), model.critic(context)
    before = model.prior(context) if model.prior else values.logits
    for row in range(NUM_STREAMS):
        for t in range(LENGTH):
            for action in range(ENV.spec.num_actions):
                q1, q2 = values.q[:, row, t, action].tolist()
                expected = scale * (min(q1, q2) - float(values.value[row, t]))
                if before is not None:
                    expected += float(before[row, t, action])
                assert got[row, t, action].item() == pytest.approx(expected, abs=1e-4)


@torch.no_grad()
def test_a_scale_of_zero_is_the_prior_to_the_bit() -> None:
    model, context = guided("one trunk", has_prior=True, scale=0.0), shown(batch_of())
    context = context._replace(
        prev_action=context.prev_action.clamp(max=3), prev_reward=context.prev_reward.clamp(max=1)
    )
    assert model.prior is not None
    assert torch.equal(model(context), model.prior(context))


@torch.no_grad()
def slow_logits(model: Guided, transitions: Rollout, num_kept: int) -> list[Tensor]:
    """At each step one forward over the whole context, `[B, A]` each."""
    start, logits = 0, []
    for t in range(len(transitions.obs)):
        if t - start == LENGTH:
            start = t - num_kept
        context = context_of(ENV.spec, *(column[:, start : t + 1] for column in columns_of(transitions)))
        logits.append(model(context)[:, -1])
    return logits


@pytest.mark.parametrize("has_prior", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_logits_equal_the_slow_reference_past_full_contexts(form: str, has_prior: bool) -> None:
    policy = Spied(guided(form, has_prior))
    transitions = play(policy)
    expected = slow_logits(cast(Guided, policy.model), transitions, 3)
    for got, slow in zip(policy.noted, expected, strict=True):
        torch.testing.assert_close(got, slow, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("has_prior", [False, True])
@pytest.mark.parametrize("form", ["one trunk", "two trunks", "two trunks of three tokens"])
def test_a_rewritten_context_is_read_anew_by_all_that_read(form: str, has_prior: bool) -> None:
    """With an ablation the logits are those of one forward over what then stands in the context."""
    model = guided(form, has_prior)
    contexts: list[Tensor] = []
    seen: list[int] = []

    class Watched(Spied):
        def logits(self, carry: GPTCarry, step: Step) -> tuple[Tensor, GPTCarry]:
            logits, carry = super().logits(carry, step)
            contexts.append(carry.window.clone())
            seen.append(carry.seen)
            return logits, carry

    policy = Watched(model)
    transitions = play(Rewritten(policy, shuffled), NUM_STEPS)
    starts = transitions.timestep == 0
    assert (starts[1:].any(1) & ~starts[1:].all(1)).any()  # not all at once
    whole = torch.stack(columns_of(transitions))
    moved = False
    with torch.no_grad():
        for t, (window, length) in enumerate(zip(contexts, seen, strict=True)):
            expected = model(context_in(ENV.spec, window[:, :, :length]))[:, -1]
            torch.testing.assert_close(policy.noted[t], expected, atol=1e-4, rtol=1e-4)
            moved = moved or (t < LENGTH and not torch.equal(window[OBS, :, :length], whole[OBS, :, :length]))
    assert moved


@pytest.mark.parametrize("form", ["two trunks", "two trunks of three tokens"])
@torch.no_grad()
def test_a_cleared_cache_remembers_nothing_and_a_replaced_one_all(form: str) -> None:
    model = guided(form, has_prior=True)
    one, other = (
        context_of(ENV.spec, *(column[:, first : first + 3] for column in columns_of(play(Spied(model)))))
        for first in (0, 4)
    )
    cache, fresh = model.new_cache(NUM_STREAMS), model.new_cache(NUM_STREAMS)
    model(one, cache)
    cache.clear()
    torch.testing.assert_close(model(other, cache), model(other, fresh))
    mixed, some = model.new_cache(NUM_STREAMS), torch.tensor([1, 3])
    model(one, mixed)
    theirs = model.new_cache(2)
    model(type(other)(*(column[some] for column in other)), theirs)
    mixed.replace(some, theirs)
    newest = type(other)(*(column[:, -1:] for column in other))
    kept = model.new_cache(NUM_STREAMS)
    model(one, kept)
    expected = model(newest, kept)
    expected[some] = model(type(other)(*(column[some] for column in newest)), theirs)
    torch.testing.assert_close(model(newest, mixed), expected)
