"""The in-context model: what it may see, what it must see, and that its cache changes nothing.

A window of transitions goes in (obs, action, reward, timestep); the context shifts actions and rewards by a step.
"""

import dataclasses
import itertools

import pytest
import torch
from torch import Tensor

from src.config import load_config
from src.contracts import EnvSpec
from src.nn.gpt import GPT, Context, ObsEmbedding, context_of
from src.schema import ModelConfig

SPEC = EnvSpec(num_obs=25, num_actions=5, reward_values=(0.0, 1.0), width=5, max_episode_steps=7)
CONFIG = dataclasses.replace(
    load_config().model, context_len=12, embed_dim=16, num_layers=2, num_heads=2, ff_dim=32, max_size=6
)
LENGTH = CONFIG.context_len
FORMS = [
    {"tokens": tokens, "position": position, "obs_encoding": encoding, "add_env_time": add_env_time}
    for tokens, position, encoding, add_env_time in itertools.product(
        ("transition", "interleaved"),
        ("env_time", "learned", "rope", "none"),
        ("cell", "coordinates"),
        (True, False),
    )
    if add_env_time or position != "env_time"
]


def name_of(form: dict[str, str | bool]) -> str:
    return "-".join([*(str(value) for value in form.values() if not isinstance(value, bool))]) + (
        "" if form["add_env_time"] else "-timeless"
    )


every_form = pytest.mark.parametrize("form", FORMS, ids=name_of)


def gpt(std: float = 0.3, **form: str | bool | float) -> GPT:
    """A model with parameters so large that whatever it reads shows in the logits."""
    model = GPT(dataclasses.replace(CONFIG, **form), SPEC)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)
    return model.eval()


def window(num_streams: int = 3, length: int = LENGTH) -> dict[str, Tensor]:
    """Random transitions, `[B, T]` each; episodes of the streams end at different times."""
    generator = torch.Generator().manual_seed(1)

    def below(high: int) -> Tensor:
        return torch.randint(high, (num_streams, length), generator=generator)

    return {
        "obs": below(SPEC.num_obs),
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
    """Nothing from action t on, and no observation or time after t, moves the logits at t."""
    model, columns = gpt(**form), window()
    before = logits_of(model, columns)
    for t in range(LENGTH):
        later = {name: column.clone() for name, column in columns.items()}
        later["action"][:, t:] = (later["action"][:, t:] + 1) % SPEC.num_actions
        later["reward"][:, t:] = 1 - later["reward"][:, t:]
        later["obs"][:, t + 1 :] = (later["obs"][:, t + 1 :] + 7) % SPEC.num_obs
        later["timestep"][:, t + 1 :] = (later["timestep"][:, t + 1 :] + 3) % SPEC.max_episode_steps
        after = logits_of(model, later)
        assert torch.allclose(after[:, : t + 1], before[:, : t + 1], atol=1e-6)


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


@pytest.mark.parametrize("tokens", ["transition", "interleaved"])
def test_learned_position_tells_equal_steps_apart(tokens: str) -> None:
    """From the second step on a constant window repeats one step; without a position code the model sees no order."""
    apart = {}
    for position in ("learned", "none"):
        model = gpt(tokens=tokens, position=position, add_env_time=False)
        same = model._embed(context_of(SPEC, **constant_window()), 0).unflatten(1, (6, -1))
        apart[position] = (same[:, 2:] - same[:, 1:-1]).abs().amax(dim=(0, 2, 3))
    assert (apart["learned"] > 0.01).all()
    assert (apart["none"] == 0).all()


@pytest.mark.parametrize("tokens", ["transition", "interleaved"])
def test_env_time_is_read_with_any_position_code_and_only_if_asked_for(tokens: str) -> None:
    columns = window()
    other = columns | {"timestep": (columns["timestep"] + 1) % SPEC.max_episode_steps}
    for position in ("learned", "rope", "none", "env_time"):
        with_time = gpt(tokens=tokens, position=position, add_env_time=True)
        assert (logits_of(with_time, columns) - logits_of(with_time, other)).abs().amax(-1).min() > 1e-4
        if position != "env_time":
            without = gpt(tokens=tokens, position=position, add_env_time=False)
            assert torch.equal(logits_of(without, columns), logits_of(without, other))


def test_an_action_carries_the_time_it_was_taken_at() -> None:
    """Interleaved tokens: reward and observation at step t have its time, the action before them its own."""
    model = gpt(tokens="interleaved", position="env_time", add_env_time=True)
    context = context_of(SPEC, **window(num_streams=1))
    got = model._embed(context, 0).unflatten(1, (LENGTH, 3))[0]
    for t in range(1, LENGTH):
        now, then = (model.env_time.weight[context.timestep[0, i]] for i in (t, t - 1))
        assert torch.allclose(got[t, 0], model.prev_action.weight[context.prev_action[0, t]] + then)
        assert torch.allclose(got[t, 1], model.prev_reward.weight[context.prev_reward[0, t]] + now)
        assert torch.allclose(got[t, 2], model.obs(context.obs)[0, t] + now)


def encoding(obs_encoding: str, width: int = 5) -> ObsEmbedding:
    config: ModelConfig = dataclasses.replace(CONFIG, obs_encoding=obs_encoding)
    return ObsEmbedding(config, SPEC._replace(num_obs=width * width, width=width))


def test_coordinates_add_the_row_and_the_column() -> None:
    tables = encoding("coordinates")
    rows, columns = (table.weight for table in tables.tables)
    for row, column in itertools.product(range(5), range(5)):
        assert torch.equal(tables(torch.tensor(row * 5 + column)), rows[row] + columns[column])


def test_coordinates_mean_the_same_in_a_larger_room() -> None:
    """So that a model can be shown a room it was not trained in: cell (2, 3) has one code in any room."""
    small, large = encoding("coordinates", 5), encoding("coordinates", 6)
    large.load_state_dict(small.state_dict())
    assert torch.equal(small(torch.tensor(2 * 5 + 3)), large(torch.tensor(2 * 6 + 3)))


def test_cells_have_a_vector_each() -> None:
    vectors = encoding("cell")(torch.arange(25))
    assert vectors.shape == (25, CONFIG.embed_dim)
    assert len({tuple(vector.tolist()) for vector in vectors}) == 25


def test_every_parameter_learns() -> None:
    for form in FORMS:
        model = gpt(**form)
        columns = window(num_streams=20)
        model(context_of(SPEC, **columns)).square().mean().backward()
        silent = [name for name, parameter in model.named_parameters() if not parameter.grad.abs().sum() > 0]
        assert not silent, form


def test_embedding_dropout_acts_in_training_alone() -> None:
    model, columns = gpt(embedding_dropout=0.5), window()
    assert torch.equal(logits_of(model, columns), logits_of(gpt(), columns))
    model.train()
    assert not torch.allclose(logits_of(model, columns), logits_of(model, columns))
