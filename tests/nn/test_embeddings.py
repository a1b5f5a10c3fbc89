"""Embeddings: cells of a room, rooms framed in a larger grid, point sets, sinusoids; and stacked point networks."""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from gymnasium.spaces import Discrete
from hypothesis import given, settings
from hypothesis import strategies as st
from models import outspoken
from torch import Tensor

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.nn.embeddings import ObsEmbedding, PointEmbedding, SmoothTable, draw_corners, point_features, sinusoids
from icrl.nn.networks import StackedPointNetwork
from icrl.spaces import discrete_spec

CONFIG = replace(load_config().model, embed_dim=16, max_size=8, obs_encoding="cell")
SPEC = discrete_spec(num_obs=25, num_actions=5, reward_values=(0.0, 1.0), width=5, max_episode_steps=7)
POINTS = discrete_spec(2**20, 4, (0.0, 1.0), 0, 6, "end", points=(5, 3))
CPU, SEEDS = torch.device("cpu"), torch.tensor([3, 1, 4])


def embedding(obs_encoding: str, width: int = 5, num_layers: int = 1) -> ObsEmbedding:
    config = replace(CONFIG, obs_encoding=obs_encoding)
    return ObsEmbedding(
        config, SPEC._replace(observation_space=Discrete(num_layers * (width**2 or 25)), width=width)
    ).eval()


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
    """By the equation, number by number; of the same length, and the more alike the nearer."""
    smooth = SmoothTable(6, 16)
    for row in range(6):
        shares = [math.exp(-abs(row - other) / 3) for other in range(6)]
        expected = sum(share * vector for share, vector in zip(shares, smooth.weight, strict=True))
        expected = expected / math.sqrt(sum(share**2 for share in shares))
        torch.testing.assert_close(smooth(torch.tensor([[row]]))[0, 0], expected)
    smooth.weight.data = torch.eye(6)
    vectors = smooth(torch.arange(6))
    alike = (vectors @ vectors.T).tolist()
    for row, near, far in itertools.permutations(range(6), 3):
        if near in range(*sorted((row, far))):
            assert 0.99 < alike[row][row] < 1.01 and alike[row][near] > alike[row][far]


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


Position = Sequence[Sequence[int]]
positions = st.lists(st.tuples(*[st.integers(0, 10**6) | st.integers(0, 3)] * 3), min_size=1, max_size=5)


def obs_of(points: Position) -> Tensor:
    """Observation `[K]`."""
    numbers = [x + 1 for point in points for x in point]
    return torch.tensor([*numbers, *[0] * (15 - len(numbers)), 0, 1, 0, 1, 1, 0, 1])


@settings(deadline=None, max_examples=25)
@given(position=positions, other=positions)
def test_features_are_those_of_loops_over_points(position: Position, other: Position) -> None:
    features, present, flags = point_features(POINTS, torch.stack([obs_of(position), obs_of(other)]).expand(2, 2, -1))
    assert flags.dtype == torch.float32 and flags[0, 1].tolist() == [0, 1, 0, 1, 1, 0, 1]
    assert features.dtype == torch.float32 and features.min() >= 0 and features.max() <= 1
    for index, points in enumerate((position, other)):
        assert present[0, index, :, 0].tolist() == [row < len(points) for row in range(5)]
        assert not features[1, index, len(points) :].any()
        largest = max(map(max, points)) or 1
        for row, point in enumerate(points):
            expected = [x / largest for x in point] + [math.log1p(x) / math.log1p(largest) for x in point]
            assert features[0, index, row].tolist() == pytest.approx(expected, abs=1e-6)


def pooled(obs: Tensor, layer: Callable[[Tensor], Tensor]) -> Tensor:
    features, present, flags = point_features(POINTS, obs)
    hidden = [layer(row).relu() for row in features[present[:, 0]]]
    return torch.cat([torch.stack(hidden).amax(0), sum(hidden) / len(hidden), flags])


def test_networks_over_points_equal_plain_layers_on_each_point() -> None:
    """So order and padding do not matter. Streams belong to learners in blocks, at every step."""
    embed, network = outspoken(PointEmbedding(CONFIG, POINTS)), outspoken(StackedPointNetwork(POINTS, 5, 8, SEEDS))
    numbers = torch.randint(9, (24, 5, 3), generator=torch.Generator().manual_seed(0)).tolist()
    obs = torch.stack([obs_of(points[: 1 + number % 5]) for number, points in enumerate(numbers)]).view(4, 6, -1)
    vectors, outputs = embed(obs, draw_corners(embed, 4, CPU)), network(obs)
    for t, stream in itertools.product(range(4), range(6)):
        expected = embed.of_set(pooled(obs[t, stream], embed.of_point))
        assert torch.allclose(vectors[t, stream], expected, atol=1e-4)
        of_point, of_set, heads = (
            partial(F.linear, weight=network.weights[name][stream // 2].T, bias=network.biases[name][stream // 2, 0])
            for name in ("of_point", "of_set", "heads")
        )
        expected = heads(of_set(pooled(obs[t, stream], of_point)).relu())
        assert torch.allclose(outputs[t, stream], expected, atol=1e-4)
