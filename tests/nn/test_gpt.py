"""The in-context model: what moves its logits, and that its cache changes nothing."""

import itertools

import pytest
import torch
from installed import INDUCTION
from models import outspoken
from policies import assert_steps_equal_one_forward
from torch import Tensor

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.nn.encoders import draw_corners
from icrl.nn.gpt import GPT, Window, context_of
from icrl.spaces import discrete_spec

SPEC = discrete_spec(num_obs=25, num_actions=5, reward_values=(0.0, 1.0), width=5, max_episode_steps=7)
CONFIG = replace(load_config().model, context_len=12, embed_dim=16, num_layers=2, num_heads=2, ff_dim=32, max_size=8)
LENGTH, CPU = CONFIG.context_len, torch.device("cpu")
TOKENS = ("transition", "interleaved", "cross")
POSITIONS = ("env_time", "learned", "sinusoidal", "rope", "none")
INPUTS = (
    *(("cell", True, INDUCTION[-1]), ("coordinates", False, False)),
    *(("framed", True, False), ("smooth", False, INDUCTION[-1])),
)
FORMS = [  # each pair of tokens and positions with an input, each of which goes with all tokens; env_time is timed
    {"tokens": tokens, "position": position, "obs_encoding": encoding, "add_env_time": timed, "induction": induction}
    | {"binding": encoding in ("cell", "smooth")}
    for (i, tokens), (j, position) in itertools.product(enumerate(TOKENS), enumerate(POSITIONS))
    for encoding, timed, induction in [INPUTS[i // 2 * 2 if position == "env_time" else (i + j) % 4]]
]
every_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form.values())))
every_tokens = pytest.mark.parametrize("tokens", TOKENS)
HIGHS = {"obs": 6, "action": SPEC.num_actions, "reward": SPEC.num_rewards, "timestep": SPEC.max_episode_steps}


def gpt(**form) -> GPT:
    """A model with parameters so large that every input shows in the logits."""
    return outspoken(GPT(replace(CONFIG, **form), SPEC)).eval()


def window(num_streams: int = 3) -> dict[str, Tensor]:
    """Random transitions among few observations; episodes of the streams end at different times."""
    generator = torch.Generator().manual_seed(1)
    columns = {name: torch.randint(high, (num_streams, LENGTH), generator=generator) for name, high in HIGHS.items()}
    columns["reward"] = SPEC.reward_of(columns["reward"])
    columns["timestep"] = (torch.arange(LENGTH) + torch.arange(num_streams)[:, None] * 3) % SPEC.max_episode_steps
    return columns


def changed(columns: dict[str, Tensor], name: str, t: int) -> dict[str, Tensor]:
    """Another value of one column at step t."""
    other = {key: column.clone() for key, column in columns.items()}
    column = other[name]
    column[:, t] = (column[:, t] + 1) % HIGHS[name]
    return other


@torch.no_grad()
def logits_of(model: GPT, columns: dict[str, Tensor]) -> Tensor:
    return model(context_of(Window(**columns)))


@every_form
def test_steps_through_the_cache_equal_one_forward(form: dict) -> None:
    assert_steps_equal_one_forward(gpt(**form), context_of(Window(**window())), atol=1e-5)


@every_form
def test_logits_see_the_past_and_nothing_else(form: dict) -> None:
    """Each action and reward before t, and each observation (and env time) up to t, moves the logits at t; nothing that
    comes later does. Every parameter learns."""
    model, columns = gpt(**form), window(20)
    model(context_of(Window(**columns))).square().mean().backward()
    assert not [name for name, parameter in model.named_parameters() if not parameter.grad.abs().sum() > 0]
    before = logits_of(model, columns)
    for name, t in itertools.product(("obs", "action", "reward", "timestep"), (0, 4, LENGTH - 2)):
        moved = (logits_of(model, changed(columns, name, t)) - before).abs().amax(dim=-1)  # [B, T]
        first = t if name in ("obs", "timestep") else t + 1
        assert (moved[:, :first] < 1e-6).all()
        seen = name != "timestep" or (form["add_env_time"] and form["position"] != "none")
        assert (moved[:, first:].amax(0) > 1e-5).all() if seen else (moved == 0).all(), (name, t)


def test_context_is_the_window_shifted() -> None:
    rows = {"obs": [4, 5, 6], "action": [1, 2, 3], "reward": [0.0, 1.0, 1.0], "timestep": [5, 6, 0]}
    context = context_of(Window(**{name: torch.tensor([row]) for name, row in rows.items()}))
    before = [[4, 4, 5]], [[1, 1, 2]], [[0, 0, 1]], [[5, 5, 6]]
    assert [column.tolist() for column in context[:-1]] == [*before, [[4, 5, 6]], [[5, 6, 0]]]
    assert context.first.tolist() == [[True, False, False]] and context.prev_reward.dtype == torch.float32


@pytest.mark.parametrize("binding", [False, True])
@pytest.mark.parametrize("induction", INDUCTION)
@pytest.mark.parametrize("position", ["env_time", "sinusoidal", "learned"])
@every_tokens
@torch.no_grad()
def test_tokens_are_the_sums_of_their_parts(tokens: str, position: str, induction: bool, binding: bool) -> None:
    """Each part has the code of its step and its env time, the action the time it was taken at. A transition token is
    the sum of all parts and the observation before. Induction reads plain parts; the first step shows no visit. In
    training, a window's observations are at one place of the grid."""
    form = {"tokens": tokens, "position": position, "induction": induction, "binding": binding}
    model = gpt(**form, obs_encoding="framed").train()
    context = context_of(Window(**window()))
    torch.manual_seed(3)
    found = model._tokens(context, ())
    torch.manual_seed(3)
    corners = draw_corners(model.obs, 3, CPU)
    numbers = context.prev_action.clone(), SPEC.reward_index(context.prev_reward)
    for number, none in zip(numbers, (SPEC.num_actions, SPEC.num_rewards), strict=True):
        number[:, 0] = none
    action, reward = model.prev_action.weight[numbers[0]], model.prev_reward.weight[numbers[1]]
    obs = model.obs(context.obs, corners)
    unit = (action - action.mean(-1, keepdim=True)) / (action.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    plain = action + binding * unit * (reward + obs), reward, obs
    now, then = model.env_time(context.timestep), model.env_time(context.prev_timestep)
    code = model.position(torch.arange(LENGTH)) if model.position else 0
    parts = [part + time + code for part, time in zip(plain, (then, now, now), strict=True)]
    if tokens == "transition":
        parts = [sum(parts) + model.prev_obs(context.prev_obs, corners)]
    if induction:
        parts[-1] = parts[-1] + model.induction(parts[-1], sum(plain), context, unit if binding else None, None)
    assert torch.allclose(found, torch.stack(parts, dim=2), atol=1e-5)


@pytest.mark.parametrize("binding", [False, True])
@every_tokens
@torch.no_grad()
def test_only_binding_tells_in_a_mean_which_action_was_rewarded(tokens: str, binding: bool) -> None:
    model, nothing = gpt(tokens=tokens, binding=binding), torch.zeros(2, 3, dtype=torch.long)
    actions, rewards = torch.tensor([[0, 1, 0], [0, 1, 0]]), torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    one, other = model._tokens(context_of(Window(nothing, actions, rewards, nothing)), ())[:, 1:].mean(1)
    assert torch.allclose(one, other, atol=1e-6) != binding


@pytest.mark.parametrize("dropout", ["embedding_dropout", "attention_dropout", "residual_dropout"])
@pytest.mark.parametrize("induction", INDUCTION)
@every_tokens
def test_dropout_acts_in_training_alone(tokens: str, induction: bool, dropout: str) -> None:
    model, columns = gpt(tokens=tokens, induction=induction, **{dropout: 0.5}), window()
    assert torch.equal(logits_of(model, columns), logits_of(gpt(tokens=tokens, induction=induction), columns))
    model.train()
    assert not torch.allclose(logits_of(model, columns), logits_of(model, columns))
    with pytest.raises(RuntimeError, match="eval mode"):
        model(context_of(Window(**columns)), model.new_cache(3))
