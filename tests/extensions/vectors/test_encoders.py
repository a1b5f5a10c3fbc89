"""Encoders and heads of every space in a whole model: what moves its outputs, its cache, its policy, its moments."""

import itertools

import pytest
import torch
from installed import INDUCTION
from models import outspoken
from space_worlds import VECTOR, WORLDS, elements, step_at, window_of
from torch import Tensor

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.contracts import ConfigError
from icrl.extensions.vectors.encoders import ImageLayers, SummedTables
from icrl.nn.encoders import Moments, set_moments
from icrl.nn.gpt import GPT, Window, context_of
from icrl.nn.gpt_policy import GPTPolicy
from icrl.spaces import EnvSpec

LENGTH, NUM_STREAMS = 8, 3
SIZES = {"context_len": LENGTH, "embed_dim": 16, "num_layers": 2, "num_heads": 2, "ff_dim": 32}
CONFIG = replace(load_config().model, obs_encoding="coordinates", **SIZES)
FORMS = [
    *((world, {"tokens": tokens}) for world in [*WORLDS][:3] for tokens in ("transition", "interleaved", "cross")),
    *((world, {"position": "rope"}) for world in ("vector to number", "image to integers")),
    ("vector to arm", {"head": "binned", "num_bins": 5}),
    ("number to arm", {"induction": INDUCTION[-1]}),
]
every_form = pytest.mark.parametrize(("world", "form"), FORMS, ids=str)


def gpt(world: str, std: float = 0.3, **form) -> GPT:
    return outspoken(GPT(replace(CONFIG, **form), WORLDS[world]), std).eval()


@torch.no_grad()
def parameters_of(model: GPT, window: Window) -> Tensor:
    return model(context_of(window))


def changed(spec: EnvSpec, window: Window, name: str, t: int) -> Window:
    """Another value of one column at step t: that of another random window."""
    other, columns = window_of(spec, len(window.obs), LENGTH, seed=5)._asdict(), window._asdict()
    column = columns[name].clone()
    column[:, t] = other[name][:, t]
    return Window(**columns | {name: column})


@every_form
def test_parameters_see_the_past_and_nothing_else(world: str, form: dict) -> None:
    """Each action and reward before t, and each observation up to t, moves what the head gets at t; nothing that comes
    later does. Every parameter learns."""
    model, spec = gpt(world, **form).double(), WORLDS[world]
    window = window_of(spec, 20, LENGTH)
    model(context_of(window)).square().mean().backward()
    unseen = {"obs.encoder.layers.0.bias", "prev_obs.encoder.layers.0.bias"}  # of dead channels
    silent = [name for name, parameter in model.named_parameters() if not parameter.grad.abs().sum() > 0]
    assert not set(silent) - unseen
    before = parameters_of(model, window)
    for name, t in itertools.product(("obs", "action", "reward"), (0, 3, LENGTH - 2)):
        moved = (parameters_of(model, changed(spec, window, name, t)) - before).abs().amax(-1)  # [B, T]
        first = t if name == "obs" else t + 1
        assert (moved[:, :first] < 1e-9).all() and (moved[:, first:].amax(0) > 1e-12).all(), (name, t)


@every_form
@torch.no_grad()
def test_actions_are_those_of_a_slow_policy_past_full_contexts(world: str, form: dict) -> None:
    """Played by the cached policy, which keeps half of a full context; the reference reads the steps since the last
    rebuild anew, in one forward, and acts on the same noise."""
    spec, length = WORLDS[world], 2 * LENGTH + 3
    policy = GPTPolicy(gpt(world, **form), 0.7, 0.8, 0.5)
    seen, noise = window_of(spec, NUM_STREAMS, length), torch.rand(length, NUM_STREAMS)
    carry, start = policy.initial_carry(NUM_STREAMS), 0
    for t in range(length):
        action, carry = policy.act(carry, step_at(spec, seen, t), noise[t])
        assert action.shape == (NUM_STREAMS, *spec.action_shape) and action.dtype == spec.action_dtype
        start = t - LENGTH // 2 if t - start == LENGTH else start
        slow = policy.model(context_of(seen.at((slice(None), slice(start, t + 1)))))[:, -1]
        expected = policy.choose(slow, seen.obs[:, t], noise[t])
        torch.testing.assert_close(action, expected, atol=1e-4, rtol=1e-4)
        seen.action[:, t] = action


@pytest.mark.parametrize(
    ("world", "epsilon"), [("vector to arm", 0.4), ("integers to integers", 0.0), ("integers to integers", 0.4)]
)
@torch.no_grad()
def test_policies_sample_with_probability_epsilon(world: str, epsilon: float) -> None:
    number, spec = 10_000, WORLDS[world]
    policy = GPTPolicy(gpt(world, 0.2), epsilon, 0.5, 0.5)
    one = step_at(spec, window_of(spec, 1, 1), 0)
    step = one._make(column.expand(number, *column.shape[1:]) for column in one)
    action, _ = policy.act(policy.initial_carry(number), step, torch.rand(number))
    head, parameters = policy.model.head, policy.logits(policy.initial_carry(1), one)[0]
    many = torch.rand(number, head.num_noise, generator=torch.Generator().manual_seed(0))
    drawn, mode = head.sample(parameters.expand(number, -1), many, 0.5), head.mode(parameters)
    same, modes = (torch.isclose(one, mode, atol=1e-5).all(-1).float().mean().item() for one in (drawn, action))
    assert modes == pytest.approx(1 - epsilon * (1 - same), abs=0.02)
    mean = epsilon * drawn.float().mean(0) + (1 - epsilon) * mode[0].float()
    torch.testing.assert_close(action.float().mean(0), mean, atol=0.04, rtol=0)


@torch.no_grad()
def test_moments_standardize_and_travel_in_checkpoints() -> None:
    """Mean 0 and deviation 1 of what the layers read; a constant column becomes 0, and far values are clipped."""
    model, other = gpt("vector to arm"), gpt("vector to arm")
    obs = elements(VECTOR, 100, 6).double()
    obs[..., 2] = 1e6
    moments = Moments(obs.mean((0, 1)).float(), obs.std((0, 1), correction=0).float(), torch.tensor([4.0]))
    set_moments(model, moments)
    other.load_state_dict(model.state_dict())
    for standardize in (other.obs.encoder.standardize, other.prev_obs.encoder.standardize):
        got = standardize(obs)
        torch.testing.assert_close(got.mean((0, 1)), torch.zeros(3).double(), atol=1e-5, rtol=0)
        spread = got.std((0, 1), correction=0)
        torch.testing.assert_close(spread, torch.tensor([1.0, 1.0, 0.0]).double(), atol=1e-5, rtol=0)
        assert standardize(obs + 1e9).abs().max() == 10
    linear = other.prev_reward.encoder.linear
    expected = linear(torch.tensor([[[0.5], [-1.0]]]))
    assert torch.equal(other.prev_reward.encoder(torch.tensor([[2.0, -4.0]])), expected)


def test_images_of_any_size_are_read_and_their_channels_have_moments_of_their_own() -> None:
    for height, width in ((5, 4), (9, 9), (64, 16)):
        layers = ImageLayers((height, width, 3), 16)
        pixels = torch.randint(256, (2, 3, height, width, 3), dtype=torch.uint8)
        assert layers(pixels).shape == (2, 3, 16)
    layers.standardize.set(torch.tensor([0.0, 1.0, 2.0]), torch.tensor([1.0, 2.0, 0.0]))
    got = layers.standardize(torch.full((1, 1, 1, 1, 3), 5, dtype=torch.uint8))
    assert got.flatten().tolist() == [5.0, 2.0, 3.0]


def test_summed_tables_have_a_row_for_each_value_of_each_integer() -> None:
    tables = SummedTables([4, 2, 3], 8)
    rows = tables.table.weight
    for a, b, c in itertools.product(range(4), range(2), range(3)):
        assert torch.equal(tables(torch.tensor([[[a, b, c]]]))[0, 0], rows[[a, 4 + b, 6 + c]].sum(0))


def test_options_that_the_spaces_do_not_allow_are_refused() -> None:
    for spec, form, message in (
        (WORLDS["vector to arm"], {"obs_encoding": "framed"}, "model.obs_encoding=framed needs Discrete observations"),
        (WORLDS["image to number"], {"obs_encoding": "cell"}, "give model.obs_encoding=coordinates"),
        (WORLDS["integers to integers"], {"induction": 1}, "model.induction=1 needs Discrete observations"),
    ):
        with pytest.raises(ConfigError, match=message):
            GPT(replace(CONFIG, **form), spec)
