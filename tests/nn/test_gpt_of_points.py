"""The in-context model in the point game: observations of many numbers, and actions that are not legal."""

import itertools

import pytest
import torch
from models import outspoken
from point_worlds import legal_in, point_game
from torch import Tensor

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.contracts import Rollout, Step
from icrl.envs.rollout import rollout, start_streams
from icrl.nn.critic import ValueNetwork
from icrl.nn.gpt import ACTION, GPT, OBS, REWARD, TIMESTEP, context_in, context_of, windows_of
from icrl.nn.gpt_policy import GPTCarry, GPTPolicy
from icrl.randomness import Noise, stream_seeds

CONFIG = load_config(["experiment=point_game", "evaluation.num_episodes=4"])
CONTEXT_LEN, NUM_STREAMS, NUM_STEPS = 10, 5, 24
WORLDS = {
    "host": point_game(opponents=["table_3", "random", "last", "first@0.5", "order_120"], dimensions=[3, 2]),
    "agent": point_game(role="agent", opponents=["zeillinger", "random_pair", "weak_spivakovsky", "random_subset"]),
}
FORMS = list(itertools.product(("transition", "interleaved", "cross"), ("env_time", "learned", "rope", "none")))
every_form = pytest.mark.parametrize(("tokens", "position"), FORMS)
every_role = pytest.mark.parametrize("role", WORLDS)


def gpt(role: str, std: float = 0.3, **form: str | bool | float) -> GPT:
    sizes = {"context_len": CONTEXT_LEN, "embed_dim": 16, "num_layers": 2, "num_heads": 2, "ff_dim": 32}
    return outspoken(GPT(replace(CONFIG.model, **sizes, **form), WORLDS[role].spec), std)


class Spied(GPTPolicy):
    """Notes the logits of every step."""

    def __init__(self, model: GPT, epsilon: float = 1.0, temperature: float = 1.0) -> None:
        super().__init__(model, epsilon, temperature, 0.5)
        self.noted: list[Tensor] = []

    def logits(self, carry: GPTCarry, step: Step) -> tuple[Tensor, GPTCarry]:
        logits, carry = super().logits(carry, step)
        self.noted.append(logits)
        return logits, carry


def play(policy: GPTPolicy, role: str, num_steps: int = NUM_STEPS, num_streams: int = NUM_STREAMS) -> Rollout:
    env = WORLDS[role]
    tasks = env.all_tasks().repeat(-(-num_streams // len(env.all_tasks())), 1)[:num_streams]
    streams = start_streams(policy, env, tasks, stream_seeds(0, num_streams))
    return rollout(policy, env, streams, num_steps, Noise(stream_seeds(1, num_streams)))[0]


def columns_of(lived: Rollout) -> dict[str, Tensor]:
    return {name: getattr(lived, name).transpose(0, 1) for name in ("obs", "action", "reward", "timestep")}


def test_a_window_is_its_columns() -> None:
    lived = columns_of(play(GPTPolicy(gpt("host"), 1, 1, 0.5), "host", 7))
    window, spec = windows_of(**lived), WORLDS["host"].spec
    assert window.shape == (OBS + spec.obs_shape[0], NUM_STREAMS, 7) and window.dtype == torch.long
    for row, name in ((ACTION, "action"), (REWARD, "reward"), (TIMESTEP, "timestep")):
        assert torch.equal(window[row], lived[name])
    context, plain = context_in(spec, window), context_of(spec, **lived)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(context, plain, strict=True))
    assert torch.equal(context.obs, lived["obs"]) and torch.equal(context.prev_obs[:, 1:], lived["obs"][:, :-1])
    assert torch.equal(context.prev_obs[:, 0], lived["obs"][:, 0])
    numbers = torch.arange(12).view(3, 4)
    assert torch.equal(windows_of(numbers, numbers + 1, numbers + 2, numbers + 3)[OBS], numbers)


@every_form
@every_role
@torch.no_grad()
def test_the_cache_changes_nothing_past_full_contexts(role: str, tokens: str, position: str) -> None:
    """Against one forward over the whole context at each step, which starts anew with its newest half when full."""
    policy = Spied(gpt(role, tokens=tokens, position=position))
    lived = columns_of(play(policy, role))
    start = 0
    for t, got in enumerate(policy.noted):
        start = t - CONTEXT_LEN // 2 if t - start == CONTEXT_LEN else start
        part = {name: column[:, start : t + 1] for name, column in lived.items()}
        assert torch.allclose(got, policy.model(context_of(WORLDS[role].spec, **part))[:, -1], atol=1e-4)
    assert start > CONTEXT_LEN


@every_form
@torch.no_grad()
def test_logits_see_what_came_before_and_nothing_that_comes_later(tokens: str, position: str) -> None:
    model = gpt("host", tokens=tokens, position=position).eval()
    spec = WORLDS["host"].spec
    lived = columns_of(play(GPTPolicy(model, 1, 1, 0.5), "host", CONTEXT_LEN))
    plain = model(context_of(spec, **lived))
    for t, (name, first) in itertools.product((0, 4, 8), (("obs", 0), ("action", 1), ("reward", 1))):
        changed = {key: column.clone() for key, column in lived.items()}
        if name == "obs":
            changed["obs"][:, t, :3] += 1  # the first point moves
        else:
            changed[name][:, t] = (changed[name][:, t] + 1) % (2 if name == "reward" else spec.num_actions)
        moved = (model(context_of(spec, **changed)) - plain).abs().amax(-1)
        assert (moved[:, : t + first] < 1e-6).all()
        assert (moved[:, t + first :].amax(1) > 1e-5).all(), (name, t)


@every_role
def test_training_and_evaluation_agree_and_every_parameter_learns(role: str) -> None:
    for tokens, position in FORMS:
        model = gpt(
            role, tokens=tokens, position=position, **dict.fromkeys(("residual_dropout", "attention_dropout"), 0.0)
        )
        model.config.embedding_dropout = 0.0
        lived = columns_of(play(GPTPolicy(model, 1, 1, 0.5), role, CONTEXT_LEN))
        context = context_of(WORLDS[role].spec, **lived)
        with torch.no_grad():
            expected = model.eval()(context)
        logits = model.train()(context)
        assert torch.allclose(logits, expected, atol=1e-6)
        logits.square().mean().backward()
        silent = [name for name, parameter in model.named_parameters() if not parameter.grad.abs().sum() > 0]
        assert not silent


# ---- legal actions


@pytest.mark.parametrize(("epsilon", "temperature"), [(1.0, 1.0), (1.0, 0.01), (1.0, 100.0), (0.0, 1.0), (0.3, 1.0)])
@pytest.mark.parametrize("std", [0.3, 30.0])
@every_role
def test_no_illegal_action_is_ever_chosen(role: str, std: float, epsilon: float, temperature: float) -> None:
    """However much the model wants it: with logits that are as large as thousands."""
    model = gpt(role, std)
    with torch.no_grad():
        model.policy_head.bias[-1] += 100 * std**2  # it wants what is often not legal
    policy = Spied(model, epsilon, temperature)
    lived = play(policy, role, 12, 200)
    legal, logits = legal_in(WORLDS[role], lived.obs), torch.stack(policy.noted)
    assert legal.gather(-1, lived.action[..., None]).all()
    wanted = logits.argmax(-1, keepdim=True)
    assert not legal.gather(-1, wanted).all()  # some would have been
    if not epsilon:
        assert torch.equal(lived.action, logits.masked_fill(~legal, -torch.inf).argmax(-1))


@every_role
def test_actions_are_drawn_from_what_is_left_of_the_probabilities(role: str) -> None:
    policy, number = Spied(gpt(role, 0.1), temperature=0.7), 20_000
    env = WORLDS[role]
    _, one = env.reset(env.all_tasks()[-1:], torch.arange(1))
    step = Step(*(column.expand(number, *column.shape[1:]) for column in one))
    action, _ = policy.act(policy.initial_carry(number), step, torch.rand(number, generator=torch.Generator()))
    legal = legal_in(env, one.obs)[0]
    weights = (policy.noted[0][0] / 0.7).exp() * legal
    frequency = torch.bincount(action, minlength=env.spec.num_actions) / number
    assert (frequency - weights / weights.sum()).abs().max() < 0.02 and not frequency[~legal].any()


@every_role
def test_the_best_value_is_that_of_a_legal_action(role: str) -> None:
    """With backup=max the value that is learned from is of an action that can be done."""
    critic = replace(CONFIG.critic, backup="max", imitation_scaling=0.0)
    form = gpt(role).config
    network = outspoken(ValueNetwork(form, CONFIG.decoder, critic, WORLDS[role].spec)).eval()
    lived = columns_of(play(GPTPolicy(gpt(role), 1, 1, 0.5), role, CONTEXT_LEN))
    values = network(context_of(WORLDS[role].spec, **lived))
    legal = legal_in(WORLDS[role], lived["obs"])
    for stream, t in itertools.product(range(NUM_STREAMS), range(CONTEXT_LEN)):
        allowed = values.least_q[stream, t][legal[stream, t]]
        assert values.value[stream, t] == allowed.max()
    assert (values.value < values.least_q.amax(-1)).any()
