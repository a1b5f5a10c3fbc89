"""Probes against a slow reference with plain lists and no cache, in a room where streams end at different times."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from installed import INDUCTION
from models import outspoken
from policies import play
from torch import Tensor

from icrl.app.compose import load_config
from icrl.app.root import Config
from icrl.contracts import Rollout, Step
from icrl.envs import make_env
from icrl.evaluation.in_context import play_steps
from icrl.evaluation.trained import policy_of
from icrl.extensions.probes.probes import Blanked, OtherLife, Rewritten, Wiped, probes_of, shuffled
from icrl.nn.gpt import GPT, Window, context_of
from icrl.nn.gpt_policy import GPTPolicy
from icrl.randomness import Noise, mix, stream_seeds

SMALL = ("model.context_len=10", "model.embed_dim=16", "model.num_layers=2", "model.num_heads=2", "model.ff_dim=32")
WORLD = ("env.size=4", "env.max_episode_steps=6", "env.random_start=true", "policy.context_kept=0.5")
CONTEXT_LEN, NUM_KEPT, NUM_STREAMS, NUM_STEPS = 10, 5, 4, 20
FORMS = ["model.tokens=transition", "model.tokens=interleaved", "model.tokens=cross"]
FORMS += ["model.induction=true"] * INDUCTION[-1]
ENV = make_env(load_config(WORLD).env)

Past = Callable[[list[list[int]], float], list[list[int]]]  # of a context and noise


def config_of(*options: str) -> Config:
    return load_config([*SMALL, *WORLD, *options])


def gpt(*options: str) -> GPT:
    return outspoken(GPT(config_of(*options).model, ENV.spec))


class Spied(GPTPolicy):
    def __init__(self, *options: str, model: GPT | None = None) -> None:
        super().__init__(model or gpt(*options), 1.0, 1.0, 0.5)
        self.noted: list[Tensor] = []

    def choose(self, logits: Tensor, obs: Tensor, noise: Tensor) -> Tensor:
        self.noted.append(logits)
        return super().choose(logits, obs, noise)


@torch.no_grad()
def check_logits(policy: Spied, played: Rollout, past: Past, reward_scale: int = 1) -> None:
    """Each step of each stream by one forward over its list of transitions, which `past` replaces where an episode
    begins; `reward_scale`: factor of the rewards that are read."""
    noise = Noise(stream_seeds(1, NUM_STREAMS)).draw(NUM_STEPS)
    for stream in range(NUM_STREAMS):
        context = []
        for t in range(NUM_STEPS):
            if int(played.timestep[t, stream]) == 0 and context:
                context = past(context, float(noise[t, stream]))
            if len(context) == CONTEXT_LEN:
                context = context[-NUM_KEPT:]
            columns = (played.obs, played.action, played.reward * reward_scale, played.timestep)
            context.append([column[t, stream] for column in columns])
            seen = Window(*(torch.stack(column)[None] for column in zip(*context, strict=True)))
            expected = policy.model(context_of(seen))[0, -1]
            assert torch.allclose(policy.noted[t][stream], expected, atol=1e-4), (stream, t)


@pytest.mark.parametrize(
    ("form", "context_len"), [*((form, 10) for form in [*FORMS, "model.position=learned"]), (FORMS[0], 4)]
)
def test_a_wiped_context_is_that_of_a_fresh_policy(form: str, context_len: int) -> None:
    """Which starts with each episode of each stream; also where an episode is longer than the context."""
    length = f"model.context_len={context_len}"
    policy = Spied(length, form)
    played = play(Wiped(policy), ENV, 14, NUM_STREAMS)
    ends = played.terminated | played.truncated
    assert (ends.any(dim=1) & ~ends.all(dim=1)).any()
    if context_len == 4:
        assert played.timestep.max() == 5
    for stream in range(NUM_STREAMS):
        for t in range(14):
            if int(played.timestep[t, stream]) == 0:
                carry, reward = policy.initial_carry(1), torch.zeros(1)
            obs, timestep = played.obs[t, stream, None], played.timestep[t, stream, None]
            no = torch.zeros(1, dtype=torch.bool)
            expected, carry = policy.logits(carry, Step(obs, reward, no, no, obs, timestep, obs))
            assert torch.allclose(policy.noted[t][stream], expected[0], atol=1e-5), (stream, t)
            carry.window.action[:, carry.seen - 1] = played.action[t, stream]
            reward = played.reward[t, stream, None]


def in_order(context: list[list[int]], noise: float) -> list[list[int]]:
    """Sorted by numbers that a hash gives the slots."""
    luck = torch.tensor(int(noise * 2**24))
    return [context[slot] for slot in sorted(range(len(context)), key=lambda slot: int(mix(luck, slot)))]


@pytest.mark.parametrize("form", FORMS)
def test_a_shuffled_context_and_blanked_rewards(form: str) -> None:
    policy = Spied(form)
    played = play(Rewritten(policy, shuffled), ENV, NUM_STEPS, NUM_STREAMS)
    ends = played.terminated | played.truncated
    assert played.terminated.any() and (ends.any(dim=1) & ~ends.all(dim=1)).any()  # at different times
    check_logits(policy, played, in_order)
    policy = Spied(form)
    blanked = play(Blanked(policy), ENV, NUM_STEPS, NUM_STREAMS)
    check_logits(policy, blanked, lambda context, noise: context, reward_scale=0)
    assert played.reward.sum() > 0 and blanked.reward.sum() > 0


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 2))
def test_where_a_life_is_cut(seed: int, num_tasks: int, num_streams: int) -> None:
    """By a search through the steps, for lives whose episodes end at random."""
    generator = torch.Generator().manual_seed(seed)
    num_steps, number = 20, num_tasks * num_streams
    ends, by_task = torch.rand((2, num_steps, number), generator=generator) < torch.tensor([0.3, 0.5])[:, None, None]
    ends[-1] = True
    obs, action, reward, timestep = columns = torch.randint(99, (4, num_steps, number), generator=generator)
    life = Rollout(obs, action, reward, obs, timestep, ends & by_task, ends & ~by_task, ends)
    other = OtherLife(lambda: life, num_streams)
    begun = torch.randperm(number, generator=generator)[: 1 + seed % number]
    for time in range(1, num_steps + 1):
        length = 1 + seed % time
        past = Window(*torch.zeros(4, len(begun), length, dtype=torch.long))
        found = torch.stack([*other(past, begun, time, torch.zeros(len(begun)))])
        for i, stream in enumerate(begun.tolist()):
            donor = (stream // num_streams + 1) % num_tasks * num_streams + stream % num_streams
            end = next(e for e in range(time, num_steps + 1) if ends[e - 1, donor])
            assert torch.equal(found[:, i], columns[:, end - length : end, donor])


def test_the_reward_that_is_none_is_the_one_nearest_to_zero() -> None:
    policy = Spied()
    each = ((0.0, 1.0), 0), ((-1.0, 0.0, 1.0), 0), ((-100.0, -1.0), -1), ((0.5, -0.2, 3.0), -0.2), ((), 0)
    for values, least in each:
        policy.model.spec = ENV.spec._replace(reward_values=values)
        assert Blanked(policy).reward == least


def setup_of(*options: str, num_tasks: int = 3) -> Any:
    config = config_of("evaluation.num_episodes=4", "evaluation.num_probe_streams=2", *options)
    tasks = {"held_out": ENV.all_tasks()[:num_tasks]}
    return SimpleNamespace(
        config=config, env=ENV, policy=policy_of(config, gpt(*options)), tasks=tasks, main="held_out"
    )


def test_temperatures_without_that_of_the_model_itself() -> None:
    found = probes_of(setup_of("evaluation.ablations=false", "evaluation.temperatures=[0,0.5,1,1.5]"))
    keys = ("sample_probability", "temperature", "num_kept")
    described = {name: tuple(vars(one)[key] for key in keys) for name, one in found.items()}
    of_names = {"temperature 0": (0, 1), "temperature 0.5": (1, 0.5), "temperature 1.5": (1, 1.5)}
    assert described == {name: (*both, NUM_KEPT) for name, both in of_names.items()}
    greedy = ("evaluation.ablations=false", "evaluation.temperatures=[0,1]", "evaluation.sample_probability=0")
    assert list(probes_of(setup_of(*greedy))) == ["temperature 1"]


def test_ablations_act_as_the_model_does() -> None:
    """The other life is long enough for streams in which only the clock ends episodes, up to the last step."""
    options = ("evaluation.temperatures=[]", "policy.temperature=0.7", "evaluation.sample_probability=0.5")
    setup = setup_of(*options)
    found = probes_of(setup)
    assert list(found) == ["blank", "shuffled", "wiped", "other_task"]
    for probe in found.values():
        plain = vars(probe)["policy"]
        assert (plain.temperature, plain.sample_probability, plain.num_kept) == (0.7, 0.5, NUM_KEPT)
    lived = play_steps(setup.policy, ENV, ENV.all_tasks()[:3], 2, 24 + 12, setup.config.seed)
    window, ends = vars(found["other_task"])["rewrite"]._window_and_ends
    assert torch.equal(window.obs, lived.obs.T[[2, 3, 4, 5, 0, 1]])
    assert (ends[:, 24 + 6 - 3] <= ends.shape[1]).all()  # 4 episodes of 6 steps, with short ones between them
    assert list(probes_of(setup_of("evaluation.temperatures=[]", num_tasks=1))) == ["blank", "shuffled", "wiped"]
