"""Networks over point sets: features and pooling by loops, seeds, and a model that reads them step by step."""

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
from icrl.nn.gpt import GPT, Context, Window, context_of
from icrl.spaces import discrete_spec

POINTS = discrete_spec(2**20, 4, (0.0, 1.0), 0, 6, "end", points=(5, 3))
CPU, SEEDS, LENGTH = torch.device("cpu"), torch.tensor([3, 1, 4]), 8
CONFIG = replace(
    load_config().model,
    **{"obs_encoding": "cell", "context_len": LENGTH, "embed_dim": 16, "num_layers": 2, "num_heads": 2, "ff_dim": 32},
)


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


def test_a_network_is_a_function_of_its_own_seed() -> None:
    network, alone = StackedPointNetwork(POINTS, 5, 8, SEEDS), StackedPointNetwork(POINTS, 5, 8, SEEDS[2:])
    for (name, ours), theirs in zip(network.named_parameters(), alone.parameters(), strict=True):
        assert torch.equal(ours[2], theirs[0])
        assert not ours.any() if "bias" in name else (ours[0] != ours[1]).all()
        assert "heads" not in name or ours.abs().max() <= ours.shape[1] ** -0.5


@pytest.mark.parametrize("tokens", ["transition", "interleaved", "cross"])
@torch.no_grad()
def test_a_model_reads_point_sets_step_by_step_as_at_once(tokens: str) -> None:
    """The observation at t moves the logits from t on, and no earlier ones."""
    model = outspoken(GPT(replace(CONFIG, tokens=tokens), POINTS)).eval()
    generator = torch.Generator().manual_seed(0)
    obs = torch.randint(6, (3, LENGTH, 22), generator=generator)
    obs[..., 15:] = torch.randint(2, (3, LENGTH, 7), generator=generator)
    action, timestep = (torch.randint(4, (3, LENGTH), generator=generator) for _ in range(2))
    window = Window(obs, action, torch.ones(3, LENGTH), timestep)
    context, expected, cache = context_of(window), model(context_of(window)), model.new_cache(3)
    for t in range(LENGTH):
        one = model(Context(*(column[:, t : t + 1] for column in context)), cache)
        assert torch.allclose(one, expected[:, t : t + 1], atol=1e-5)
    other = obs.clone()
    other[:, 4, 0] += 1
    moved = (model(context_of(window._replace(obs=other))) - expected).abs().amax((0, 2))
    assert (moved[:4] < 1e-6).all() and (moved[4:] > 1e-6).all()
