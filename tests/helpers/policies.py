"""Policies of models against a slow reference without a cache, in any world."""

from typing import Any

import torch
from models import outspoken
from small_models import CONFIG
from torch import Tensor

from icrl.config.options import replace
from icrl.contracts import Rollout, Step
from icrl.envs.core import TensorEnv
from icrl.envs.rollout import rollout, start_streams
from icrl.envs.steps import step_of
from icrl.nn.gpt import GPT, Context, Window, context_of
from icrl.nn.gpt_policy import Acting, GPTCarry, GPTPolicy
from icrl.randomness import Noise, stream_seeds
from icrl.spaces import EnvSpec

CONTEXT_LEN, NUM_STREAMS, NUM_STEPS = 7, 5, 24
FRACTIONS = ((0.1, 0.0), (0.1, 0.3), (0.1, 1.0), (30.0, 0.0), (30.0, 0.3), (30.0, 1.0))  # std of weights, epsilon


def gpt(spec: EnvSpec, std: float = 0.3, **form: Any) -> GPT:
    return outspoken(GPT(replace(CONFIG.model, **form), spec), std).eval()


class Beside:
    """Random play beside a policy that sees these actions. `noted`: its own ones, and its memory."""

    def __init__(self, policy: Any, num_actions: int) -> None:
        self.policy, self.num_actions, self.noted = policy, num_actions, []
        self.initial_carry = policy.initial_carry

    def act(self, carry: Any, step: Step, noise: Tensor) -> tuple[Tensor, Any]:
        own, carry = self.policy.act(carry, step, noise)
        self.noted.append((own, carry))
        action = (noise * self.num_actions).long()
        return action, self.policy.replace_action(carry, action)


class Recorded(GPTPolicy):
    """A policy that keeps the logits of every step."""

    def __init__(self, model: GPT | Acting, epsilon: float = 1.0, temperature: float = 1.0, kept: float = 0.5) -> None:
        super().__init__(model, epsilon, temperature, kept)
        self.noted = []

    def logits(self, carry: GPTCarry, step: Step) -> tuple[Tensor, GPTCarry]:
        logits, carry = super().logits(carry, step)
        self.noted.append(logits)
        return logits, carry


def play(policy: GPTPolicy, env: TensorEnv, num_steps: int = NUM_STEPS, num_streams: int = NUM_STREAMS) -> Rollout:
    tasks = env.all_tasks().repeat(-(-num_streams // len(env.all_tasks())), 1)[:num_streams]
    streams = start_streams(policy, env, tasks, stream_seeds(0, num_streams))
    return rollout(policy, env, streams, num_steps, Noise(stream_seeds(1, num_streams)))[0]


def columns_of(played: Rollout) -> list[Tensor]:
    return [getattr(played, name).transpose(0, 1) for name in ("obs", "action", "reward", "timestep")]


@torch.no_grad()
def slow_logits(model: GPT | Acting, played: Rollout, num_kept: int) -> list[Tensor]:
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


@torch.no_grad()
def assert_steps_equal_one_forward(model: GPT, context: Context, atol: float) -> None:
    """Outputs through the cache, step by step and in pieces, are those of one forward."""
    expected, total = model(context), context.obs.shape[1]
    for lengths in ([1] * total, [5, 1, total - 8, 2]):
        cache, start = model.new_cache(len(context.obs)), 0
        for length in lengths:
            got = model(Context(*(column[:, start : start + length] for column in context)), cache)
            assert torch.allclose(got, expected[:, start : start + length], atol=atol)
            start += length


def assert_slow_past_full_contexts(env: TensorEnv, **form: Any) -> None:
    """A model of this `form` has the logits of the slow reference in streams whose episodes end at different times, and
    takes legal actions."""
    policy = Recorded(gpt(env.spec, **form))
    played = play(policy, env)
    assert_slow(policy, played)
    ends = played.terminated | played.truncated
    assert (ends.any(dim=1) & ~ends.all(dim=1)).any()
    legal = env.spec.legal(played.obs)
    assert legal is None or legal.gather(-1, played.action[..., None]).all()


def assert_frequencies(env: TensorEnv, std: float, epsilon: float, *, masked: bool, **form: Any) -> None:
    """Over many streams in one state: epsilon * p + (1 - epsilon) * 1[a = argmax], p over the legal actions, even with
    logits in the thousands and a strong preference for illegal ones. Some are illegal in a `masked` world."""
    number, model = 20_000, gpt(env.spec, std, **form)
    _, one = env.reset(env.all_tasks()[-3:-2], torch.arange(1))
    legal = env.spec.legal_of(torch.zeros(1, env.spec.num_actions), one.obs)[0] == 0
    assert legal.all() != masked
    with torch.no_grad():
        model.policy_head.bias[~legal] += 100 * max(std, 1) ** 2
    policy = Recorded(model, epsilon, 0.7)
    step = Step(*(column.expand(number, *column.shape[1:]) for column in one))
    action, _ = policy.act(policy.initial_carry(number), step, torch.rand(number, generator=torch.Generator()))
    assert not masked or not legal[policy.noted[0][0].argmax()]
    logits = policy.noted[0][0].masked_fill(~legal, -torch.inf)
    expected = epsilon * (logits / 0.7).softmax(-1)
    expected[logits.argmax()] += 1 - epsilon
    frequency = torch.bincount(action, minlength=env.spec.num_actions) / number
    assert (frequency - expected).abs().max() < 0.015 and not frequency[~legal].any()


FIELDS = ("obs", "reward", "timestep", "final_obs", "terminated", "truncated")  # of a step


def assert_driven_by_hand(policy: GPTPolicy, env: TensorEnv) -> None:
    """From numbers, step by step, past the ends of episodes: the actions of a rollout."""
    tasks, seeds = env.all_tasks()[:1].repeat(4, 1), stream_seeds(0, 4)
    expected, _ = rollout(policy, env, start_streams(policy, env, tasks, seeds), 20, Noise(stream_seeds(1, 4)))
    state, shown = env.reset(tasks, seeds)
    step, carry = step_of(env.spec, obs=torch.tensor(shown.obs.tolist())), policy.initial_carry(4)
    for t, noise in enumerate(Noise(stream_seeds(1, 4)).draw(20)):
        action, carry = policy.act(carry, step, noise)
        assert torch.equal(action, expected.action[t])
        state, shown = env.step(state, action)
        step = step_of(env.spec, **{name: torch.tensor(getattr(shown, name).tolist()) for name in FIELDS})
    assert (expected.terminated | expected.truncated).any()
