"""The in-context model: what it may see, what it must see, and that its cache changes nothing.

A window of transitions goes in (obs, action, reward, timestep); the context shifts actions and rewards by a step.
"""

import itertools
import math

import pytest
import torch
from models import outspoken
from torch import Tensor

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.contracts import EnvSpec
from icrl.nn.gpt import GPT, Context, Sinusoids, context_of
from icrl.nn.transformer import Block

SPEC = EnvSpec(num_obs=25, num_actions=5, reward_values=(0.0, 1.0), width=5, max_episode_steps=7)
CONFIG = replace(
    load_config().model, context_len=12, embed_dim=16, num_layers=2, num_heads=2, ff_dim=32, max_size=8
)
LENGTH = CONFIG.context_len
TOKENS = ("transition", "interleaved", "cross")
FORMS = [
    {"tokens": tokens, "position": position, "obs_encoding": encoding, "add_env_time": timed, "induction": induction}
    for tokens, position, encoding, timed, induction in itertools.product(
        TOKENS,
        ("env_time", "learned", "sinusoidal", "rope", "none"),
        ("cell", "coordinates", "framed"),
        (True, False),
        (False, True),
    )
    if timed or position != "env_time"
]


def name_of(form: dict[str, str | bool]) -> str:
    names = [str(value) for value in form.values() if not isinstance(value, bool)]
    return "-".join(names + [name for name in ("add_env_time", "induction") if form[name]])


every_form = pytest.mark.parametrize("form", FORMS, ids=name_of)


def gpt(std: float = 0.3, **form: str | bool | float) -> GPT:
    """A model with parameters so large that whatever it reads shows in the logits."""
    model = GPT(replace(CONFIG, **form), SPEC)
    return outspoken(model, std).eval()


def window(num_streams: int = 3, length: int = LENGTH) -> dict[str, Tensor]:
    """Random transitions among few cells, `[B, T]` each; episodes of the streams end at different times."""
    generator = torch.Generator().manual_seed(1)

    def below(high: int) -> Tensor:
        return torch.randint(high, (num_streams, length), generator=generator)

    return {
        "obs": below(6) * 4,
        "action": below(SPEC.num_actions),
        "reward": below(SPEC.num_rewards),
        "timestep": (torch.arange(length) + torch.arange(num_streams)[:, None] * 3) % SPEC.max_episode_steps,
    }


@torch.no_grad()
def logits_of(model: GPT, columns: dict[str, Tensor]) -> Tensor:
    return model(context_of(SPEC, **columns))


def part(context: Context, start: int, stop: int) -> Context:
    return Context(*(column[:, start:stop] for column in context))


@every_form
def test_steps_through_the_cache_equal_one_forward(form: dict[str, str | bool]) -> None:
    model, columns = gpt(**form), window()
    context, expected = context_of(SPEC, **columns), logits_of(model, columns)
    for lengths in ([1] * LENGTH, [5, 1, 4, 2], [LENGTH]):
        cache, start = model.new_cache(3), 0
        with torch.no_grad():
            for length in lengths:
                got = model(part(context, start, start + length), cache)
                assert torch.allclose(got, expected[:, start : start + length], atol=1e-5)
                start += length


@every_form
def test_logits_do_not_see_what_comes_later(form: dict[str, str | bool]) -> None:
    """Nothing from action t on, and no observation or time after t, moves the logits at t: for every t a copy of the
    window, changed from there on."""
    model, columns = gpt(**form), window()
    copies = {name: column.repeat(LENGTH, 1) for name, column in columns.items()}
    step, t = torch.arange(LENGTH), torch.arange(LENGTH).repeat_interleave(3)[:, None]
    highs = {"obs": SPEC.num_obs, "action": SPEC.num_actions, "reward": SPEC.num_rewards, "timestep": 7}
    later = {
        name: torch.where(step >= t if name in ("action", "reward") else step > t, (column + 1) % highs[name], column)
        for name, column in copies.items()
    }
    moved = (logits_of(model, later) - logits_of(model, copies)).abs().amax(-1)  # [LENGTH * B, T]
    assert moved[step <= t].max() < 1e-6


@every_form
def test_logits_see_all_that_came_before(form: dict[str, str | bool]) -> None:
    """Each action and reward before t and each observation (and env time) up to t moves the logits at t."""
    model, columns = gpt(**form), window()
    before = logits_of(model, columns)
    highs = {"obs": SPEC.num_obs, "action": SPEC.num_actions, "reward": SPEC.num_rewards}
    if form["add_env_time"]:
        highs["timestep"] = SPEC.max_episode_steps
    for name, high in highs.items():
        for t in (0, 4, LENGTH - 2):
            changed = {key: column.clone() for key, column in columns.items()}
            changed[name][:, t] = (changed[name][:, t] + 1) % high
            moved = (logits_of(model, changed) - before).abs().amax(dim=-1)  # [B, T]
            first = t if name in ("obs", "timestep") else t + 1
            assert (moved[:, :first] < 1e-6).all()
            assert (moved[:, first:] > 1e-4).all(), (name, t)


def test_streams_do_not_see_each_other() -> None:
    model, columns = gpt(), window()
    alone = {name: column[1:2] for name, column in columns.items()}
    assert torch.allclose(logits_of(model, alone), logits_of(model, columns)[1:2], atol=1e-6)


def test_context_is_the_window_shifted() -> None:
    columns = {
        "obs": torch.tensor([[4, 5, 6]]),
        "action": torch.tensor([[1, 2, 3]]),
        "reward": torch.tensor([[0, 1, 1]]),
        "timestep": torch.tensor([[5, 6, 0]]),
    }
    context = context_of(SPEC, **{name: column.to(torch.uint8) for name, column in columns.items()})
    assert {name: column.tolist() for name, column in context._asdict().items()} == {
        "prev_obs": [[4, 4, 5]],
        "prev_action": [[SPEC.num_actions, 1, 2]],
        "prev_reward": [[SPEC.num_rewards, 0, 1]],
        "prev_timestep": [[5, 5, 6]],
        "obs": [[4, 5, 6]],
        "timestep": [[5, 6, 0]],
    }
    assert all(column.dtype == torch.long for column in context)


def repeated(column: int, length: int = 6) -> Tensor:
    return torch.full((1, length), column)


def constant_window() -> dict[str, Tensor]:
    return {"obs": repeated(3), "action": repeated(1), "reward": repeated(0), "timestep": repeated(2)}


@pytest.mark.parametrize("tokens", TOKENS)
def test_a_position_code_tells_equal_steps_apart(tokens: str) -> None:
    """From the second step on a constant window repeats one step; without a position code the model sees no order."""
    apart = {}
    for position in ("learned", "sinusoidal", "none"):
        model = gpt(tokens=tokens, position=position, add_env_time=False)
        same = model._tokens(context_of(SPEC, **constant_window()), None)  # [1, 6, N, D]
        apart[position] = (same[:, 2:] - same[:, 1:-1]).abs().amax(dim=(0, 2, 3))
    assert (apart["learned"] > 0.01).all()
    assert (apart["sinusoidal"] > 0.01).all()
    assert (apart["none"] == 0).all()


@pytest.mark.parametrize("width", [8, 7])
def test_sinusoids_equal_loops(width: int) -> None:
    """Of the size of an embedding at the start: 0.02, the root mean square of sqrt(2) 0.02 times a wave."""
    position = torch.tensor([0, 1, 5, 300])
    code = Sinusoids(width)(position)
    assert code.shape == (4, width) and not list(Sinusoids(width).parameters())
    for row, p in enumerate(position.tolist()):
        for channel in range(width):
            angle = p * 10000 ** (-2 * (channel // 2) / width)
            wave = math.sin(angle) if channel % 2 == 0 else math.cos(angle)
            assert code[row, channel].item() == pytest.approx(0.02 * math.sqrt(2) * wave, abs=1e-5)
    assert Sinusoids(64)(torch.arange(1000)).square().mean().sqrt().item() == pytest.approx(0.02, rel=0.01)


@pytest.mark.parametrize("position", ["sinusoidal", "learned"])
@pytest.mark.parametrize("tokens", TOKENS)
@torch.no_grad()
def test_every_token_of_a_step_has_the_code_of_its_step(tokens: str, position: str) -> None:
    """A transition token, as the sum of its parts, has it three times."""
    model, plain = gpt(tokens=tokens, position=position), gpt(tokens=tokens, position="none")
    plain.load_state_dict(model.state_dict(), strict=False)
    context = context_of(SPEC, **window())
    assert model.position is not None
    code = model.position(torch.arange(LENGTH))[:, None] * (3 if tokens == "transition" else 1)
    assert torch.allclose(model._tokens(context, None) - plain._tokens(context, None), code, atol=1e-5)


@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_activation_is_that_of_all_feed_forward_layers(tokens: str, activation: str) -> None:
    kind = {"relu": torch.nn.ReLU, "gelu": torch.nn.GELU}[activation]
    blocks = [module for module in gpt(tokens=tokens, activation=activation).modules() if isinstance(module, Block)]
    assert len(blocks) >= CONFIG.num_layers
    assert all(type(block.activation) is kind for block in blocks)


@pytest.mark.parametrize("tokens", TOKENS)
def test_env_time_is_read_with_any_position_code_and_only_if_asked_for(tokens: str) -> None:
    columns = window()
    other = columns | {"timestep": (columns["timestep"] + 1) % SPEC.max_episode_steps}
    for position in ("learned", "sinusoidal", "rope", "none", "env_time"):
        with_time = gpt(tokens=tokens, position=position, add_env_time=True)
        assert (logits_of(with_time, columns) - logits_of(with_time, other)).abs().amax(-1).min() > 1e-4
        if position != "env_time":
            without = gpt(tokens=tokens, position=position, add_env_time=False)
            assert torch.equal(logits_of(without, columns), logits_of(without, other))


@pytest.mark.parametrize("tokens", ["interleaved", "cross"])
@torch.no_grad()
def test_an_action_carries_the_time_it_was_taken_at(tokens: str) -> None:
    """Three tokens: reward and observation at step t have its time, the action before them its own."""
    model = gpt(tokens=tokens, position="env_time", add_env_time=True)
    context = context_of(SPEC, **window(num_streams=1))
    got = model._tokens(context, None)[0]
    obs = model.obs(context.obs, model.obs.corners(1, torch.device("cpu")))[0]
    for t in range(1, LENGTH):
        now, then = (model.env_time.weight[context.timestep[0, i]] for i in (t, t - 1))
        assert torch.allclose(got[t, 0], model.prev_action.weight[context.prev_action[0, t]] + then)
        assert torch.allclose(got[t, 1], model.prev_reward.weight[context.prev_reward[0, t]] + now)
        assert torch.allclose(got[t, 2], obs[t] + now)


@pytest.mark.parametrize("tokens", TOKENS)
@torch.no_grad()
def test_a_trained_place_of_the_room_is_that_of_a_room_moved_there(tokens: str) -> None:
    """Framed, training shows each window as a model with `coordinates` sees it in a room as large as the grid, moved:
    its observations, those before and those that induction reads."""
    framed = gpt(tokens=tokens, obs_encoding="framed", induction=True).train()
    whole = GPT(replace(framed.config, obs_encoding="coordinates"), SPEC._replace(num_obs=64, width=8))
    whole.load_state_dict(framed.state_dict())
    columns = window(num_streams=8)
    torch.manual_seed(3)
    row, column = framed.obs.corners(8, torch.device("cpu"))
    assert len(row.unique()) > 1 and len(column.unique()) > 1
    torch.manual_seed(3)
    moved = columns | {"obs": (columns["obs"] // 5 + row) * 8 + columns["obs"] % 5 + column}
    assert torch.allclose(logits_of(framed, columns), logits_of(whole.eval(), moved), atol=1e-5)


def test_a_cache_is_refused_in_training() -> None:
    model = gpt()
    cache = model.new_cache(3)
    with pytest.raises(RuntimeError, match="eval mode"):
        model.train()(context_of(SPEC, **window()), cache)


@pytest.mark.parametrize("induction", [False, True])
@pytest.mark.parametrize("tokens", TOKENS)
def test_recomputed_blocks_give_the_same_gradient(tokens: str, induction: bool) -> None:
    dropout = {"residual_dropout": 0.2, "attention_dropout": 0.2, "embedding_dropout": 0.2}
    plain = gpt(tokens=tokens, induction=induction, obs_encoding="framed", **dropout).train()
    again = GPT(plain.config, SPEC, recompute=True)
    again.load_state_dict(plain.state_dict())
    gradients = []
    for model in (plain, again.train()):
        torch.manual_seed(0)
        model(context_of(SPEC, **window())).square().mean().backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    assert torch.equal(*gradients)


def test_every_parameter_learns() -> None:
    for form in FORMS:
        model = gpt(**form)
        columns = window(num_streams=20)
        model(context_of(SPEC, **columns)).square().mean().backward()
        silent = [name for name, parameter in model.named_parameters() if not parameter.grad.abs().sum() > 0]
        assert not silent, form


@pytest.mark.parametrize("tokens", TOKENS)
def test_embedding_dropout_acts_in_training_alone(tokens: str) -> None:
    model, columns = gpt(tokens=tokens, embedding_dropout=0.5), window()
    assert torch.equal(logits_of(model, columns), logits_of(gpt(tokens=tokens), columns))
    model.train()
    assert not torch.allclose(logits_of(model, columns), logits_of(model, columns))
