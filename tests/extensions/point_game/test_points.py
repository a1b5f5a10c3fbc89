"""Networks over point sets: features and pooling by loops."""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from models import outspoken
from torch import Tensor

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.extensions.point_game.points import PointEmbedding, StackedPointNetwork, point_features
from icrl.nn.encoders import draw_corners
from icrl.spaces import discrete_spec

POINTS = discrete_spec(2**20, 4, (0.0, 1.0), 0, 6, "end", points=(5, 3))
CPU, SEEDS = torch.device("cpu"), torch.tensor([3, 1, 4])
CONFIG = replace(load_config().model, obs_encoding="cell", embed_dim=16, num_heads=2, ff_dim=32)
Position = Sequence[Sequence[int]]
positions = st.lists(st.tuples(*[st.integers(0, 10**6) | st.integers(0, 3)] * 3), min_size=1, max_size=5)


def obs_of(points: Position) -> Tensor:
    """Observation `[K]`."""
    numbers = [x + 1 for point in points for x in point]
    return torch.tensor([*numbers, *[0] * (15 - len(numbers)), 0, 1, 0, 1, 1, 0, 1])


@settings(max_examples=25)
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
