"""Embeddings: cells of a room, rooms framed in a larger grid, sinusoids."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from gymnasium.spaces import Discrete

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.contracts import ConfigError
from icrl.nn.encoders import ObsEmbedding, draw_corners, rows_of
from icrl.nn.gpt import check_spaces
from icrl.nn.transformer import sinusoids
from icrl.spaces import discrete_spec

CONFIG = replace(load_config().model, embed_dim=16, max_size=8, obs_encoding="cell")
SPEC = discrete_spec(num_obs=25, num_actions=5, reward_values=(0.0, 1.0), width=5, max_episode_steps=7)
CPU = torch.device("cpu")


def embedding(obs_encoding: str, width: int = 5, num_layers: int = 1) -> ObsEmbedding:
    config = replace(CONFIG, obs_encoding=obs_encoding)
    return ObsEmbedding(
        config, SPEC._replace(observation_space=Discrete(num_layers * (width**2 or 25)), width=width)
    ).eval()


@pytest.mark.parametrize("shape", [(16, 160), (3, 7), (0, 4)])
def test_rows_and_their_gradient_have_the_bits_of_pytorch(shape: tuple[int, ...]) -> None:
    numbers, gradient = torch.randint(17, shape), torch.randn(*shape, 64)
    one, other = (torch.arange(17 * 64.0).view(17, 64).sin().requires_grad_() for _ in range(2))
    rows, expected = rows_of(one, numbers), F.embedding(numbers, other)
    rows.backward(gradient)
    expected.backward(gradient)
    assert torch.equal(rows, expected)
    assert one.grad is not None
    assert other.grad is not None
    assert torch.equal(one.grad, other.grad)


@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize(
    ("obs_encoding", "width", "corner"),
    [("coordinates", 3, 0), ("smooth", 3, 2), ("framed", 3, 2), ("framed", 6, 1), ("smooth", 8, 0)],
)
def test_vectors_of_row_column_and_layer_are_added(obs_encoding: str, width: int, corner: int, num_layers: int) -> None:
    """Smooth or framed, a room of side w in the middle of a grid of side 8 begins at row and column (8 - w) // 2."""
    tables = embedding(obs_encoding, width, num_layers)
    rows, columns, *layers = (table(torch.arange(8 if i < 2 else num_layers)) for i, table in enumerate(tables.tables))
    assert draw_corners(tables, 3, CPU).tolist() == [[[corner]] * 3] * 2
    places = torch.tensor([[corner, 0], [corner, corner // 2]])  # of two windows
    got = tables(torch.arange(num_layers * width**2).expand(2, -1), places[..., None])
    got = got.view(2, num_layers, width, width, -1)
    for window, layer, row, column in itertools.product(range(2), range(num_layers), range(width), range(width)):
        expected = rows[places[0, window] + row] + columns[places[1, window] + column]
        expected = expected + layers[0][layer] if layers else expected
        assert torch.equal(got[window, layer, row, column], expected)


def test_near_rows_of_a_smooth_table_are_alike() -> None:
    """By the equation, number by number."""
    smooth = embedding("smooth").tables[0]
    for row in range(8):
        shares = [math.exp(-abs(row - other) / 3) for other in range(8)]
        expected = sum(share * vector for share, vector in zip(shares, smooth.weight, strict=True))
        expected = expected / math.sqrt(sum(share**2 for share in shares))
        torch.testing.assert_close(smooth(torch.tensor([[row]]))[0, 0], expected)


@pytest.mark.parametrize(
    ("obs_encoding", "width", "fitting"),
    [("framed", 5, 4), ("framed", 8, 1), ("cell", 5, 1), ("coordinates", 5, 1), ("smooth", 5, 1)],
)
def test_training_draws_every_fitting_place_equally_often(obs_encoding: str, width: int, fitting: int) -> None:
    """For each window, and nothing if one place fits."""
    tables, number = embedding(obs_encoding, width).train(), 16_000
    torch.manual_seed(0)
    before, corners = torch.get_rng_state(), draw_corners(tables, number, CPU)
    assert corners.shape == (2, number, 1)
    row, column = corners[..., 0] - corners.min()
    frequency = torch.bincount(row * fitting + column) / number
    assert len(frequency) == fitting**2 and (frequency - fitting**-2).abs().max() < 0.01
    assert torch.equal(torch.get_rng_state(), before) == (fitting == 1)


@pytest.mark.parametrize(("obs_encoding", "width"), [("cell", 5), ("coordinates", 0), ("framed", 0)])
def test_cells_have_a_vector_each(obs_encoding: str, width: int) -> None:
    """Also in a world that is no square room."""
    tables = embedding(obs_encoding, width)
    (table,) = tables.tables
    assert torch.equal(tables(torch.arange(25)[None], draw_corners(tables, 1, CPU))[0], table.weight)


@pytest.mark.parametrize("obs_encoding", ["coordinates", "smooth", "framed"])
def test_a_room_larger_than_the_grid_is_refused(obs_encoding: str) -> None:
    spec = SPEC._replace(observation_space=Discrete(81), width=9)
    with pytest.raises(ConfigError, match=r"^model\.max_size=8 .* rooms: give model\.max_size=9, or"):
        check_spaces(replace(CONFIG, obs_encoding=obs_encoding), spec)
    check_spaces(CONFIG, spec)


@pytest.mark.parametrize("width", [8, 7])
def test_sinusoids_equal_loops(width: int) -> None:
    """With the root mean square of an embedding at the start, 0.02."""
    position = torch.tensor([0, 1, 5, 300])
    code = sinusoids(width, position)
    assert code.shape == (4, width)
    for row, p in enumerate(position.tolist()):
        for channel in range(width):
            angle = p * 10000 ** (-2 * (channel // 2) / width)
            wave = math.sin(angle) if channel % 2 == 0 else math.cos(angle)
            assert code[row, channel].item() == pytest.approx(0.02 * math.sqrt(2) * wave, abs=1e-5)
    assert sinusoids(64, torch.arange(1000)).square().mean().sqrt().item() == pytest.approx(0.02, rel=0.01)
