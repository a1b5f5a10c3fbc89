"""Networks over point sets: what they read of a position, and that its order and its padding are not part of that."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import outspoken
from torch import Tensor

from icrl.config.compose import load_config
from icrl.contracts import EnvSpec
from icrl.nn.gpt import PointEmbedding
from icrl.nn.points import point_features, point_flags, pool
from icrl.nn.stacked import StackedPointNetwork

SPEC = EnvSpec(2**20, 4, (0.0, 1.0), 0, 6, "end", points=(5, 3))
MORE = SPEC._replace(points=(9, 3))  # the same world with room for more points
CONFIG = load_config().model
CONFIG.embed_dim, CONFIG.obs_encoding = 16, "cell"
SEEDS = torch.tensor([3, 1, 4])

Position = Sequence[Sequence[int]]
positions = st.lists(st.tuples(*[st.integers(0, 10**6) | st.integers(0, 3)] * 3), min_size=1, max_size=5)


def obs_of(points: Position, spec: EnvSpec = SPEC, flags: tuple[int, ...] = (0, 1, 0, 1, 1, 0, 1)) -> Tensor:
    """`[K]`."""
    numbers = [x + 1 for point in points for x in point]
    return torch.tensor([*numbers, *[0] * (spec.points[0] * 3 - len(numbers)), *flags])


def stacked(spec: EnvSpec) -> Callable[[Tensor], Tensor]:
    network = outspoken(StackedPointNetwork(spec, 5, 8, SEEDS))
    return lambda obs: network(obs.expand(2, 6, -1))[1, ::2]  # [L, O]


def embedding(spec: EnvSpec) -> Callable[[Tensor], Tensor]:
    network = outspoken(PointEmbedding(CONFIG, spec))
    return lambda obs: network(obs.expand(2, 6, -1), network.corners(2, torch.device("cpu")))[1, 3]


every_network = pytest.mark.parametrize("make", [stacked, embedding])


# ---- features


def test_features_by_hand() -> None:
    features, present = point_features(SPEC, obs_of([(3, 0, 7), (0, 1, 0)]))
    top, one = math.log(8), math.log(2)
    expected = [[3 / 7, 0, 1, math.log(4) / top, 0, 1], [0, 1 / 7, 0, 0, one / top, 0]]
    assert torch.allclose(features[:2], torch.tensor(expected))
    assert not features[2:].any() and present[:, 0].tolist() == [True, True, False, False, False]
    assert point_flags(SPEC, obs_of([(3, 0, 7)])).tolist() == [0, 1, 0, 1, 1, 0, 1]


@settings(deadline=None)
@given(position=positions, other=positions)
def test_features_of_a_batch_are_those_of_each_and_stay_in_range(position: Position, other: Position) -> None:
    """Of the origin alone, which has no largest coordinate, too."""
    batch = torch.stack([obs_of(position), obs_of(other), obs_of([(0, 0, 0)])]).expand(2, 3, -1)
    features, present = point_features(SPEC, batch)
    assert features.dtype == torch.float32 and features.isfinite().all()
    assert features.min() >= 0 and features.max() <= 1
    for index, points in enumerate((position, other)):
        alone, there = point_features(SPEC, obs_of(points))
        assert torch.equal(features[1, index], alone) and torch.equal(present[0, index], there)
        largest = max(map(max, points)) or 1
        for row, point in enumerate(points):
            expected = [x / largest for x in point] + [math.log1p(x) / math.log1p(largest) for x in point]
            assert features[0, index, row].tolist() == pytest.approx(expected, abs=1e-6)


def test_pooling_skips_what_is_no_point() -> None:
    of_point = torch.tensor([[1.0, 4.0], [3.0, 0.0], [9.0, 9.0]])
    present = torch.tensor([[True], [True], [False]])
    assert pool(of_point, present).tolist() == [3, 4, 2, 2]
    assert pool(of_point, torch.zeros(3, 1, dtype=torch.bool)).tolist() == [0, 0, 0, 0]


# ---- networks


@every_network
@settings(deadline=None, max_examples=20)
@given(position=positions, data=st.data())
def test_the_order_of_points_does_not_matter(make: Callable, position: Position, data: st.DataObject) -> None:
    network = make(SPEC)
    other = data.draw(st.permutations(position))
    assert torch.allclose(network(obs_of(position)), network(obs_of(other)), atol=1e-5)


@every_network
@settings(deadline=None, max_examples=20)
@given(position=positions)
def test_padding_does_not_matter(make: Callable, position: Position) -> None:
    """The same parameters, room for more points."""
    assert torch.allclose(make(SPEC)(obs_of(position)), make(MORE)(obs_of(position, MORE)), atol=1e-5)


@every_network
def test_all_that_is_seen_matters(make: Callable) -> None:
    """Each coordinate, a point at the origin beside no point, and each flag."""
    network = make(SPEC)
    position = [(4, 2, 9), (1, 7, 3)]
    plain = network(obs_of(position))
    others = [obs_of([*position, (0, 0, 0)])]
    for row, axis in ((0, 0), (0, 2), (1, 0), (1, 1), (1, 2)):
        moved = [list(point) for point in position]
        moved[row][axis] += 1
        others.append(obs_of(moved))
    for flag in range(7):
        obs = obs_of(position)
        obs[-7 + flag] = 1 - obs[-7 + flag]
        others.append(obs)
    for obs in others:
        assert (network(obs) - plain).abs().max() > 1e-3


def test_every_parameter_learns() -> None:
    obs = torch.stack(
        [obs_of([(4, 2, 9), (1, 7, 3)]), obs_of([(0, 5, 1), (2, 2, 2), (6, 0, 0)], flags=(1, 0, 0) + (1,) * 4)]
    )
    of_obs = torch.stack([obs_of([(3, 1, 2)], flags=(0, 0, 0, 1, 1, 1, 1)), obs[0], obs[1]])
    stack, embedded = StackedPointNetwork(SPEC, 5, 8, SEEDS), PointEmbedding(CONFIG, SPEC)
    stack(torch.stack([of_obs, of_obs, of_obs], 1)).square().sum().backward()
    embedded(of_obs[None], torch.empty(0)).square().sum().backward()
    for name, parameter in (*stack.named_parameters(), *embedded.named_parameters()):
        gradient = parameter.grad if parameter.ndim == 3 else parameter.grad[None]  # of each learner
        assert (gradient.flatten(1).abs().sum(1) > 0).all(), name


def test_outputs_are_those_of_single_networks_in_plain_layers() -> None:
    """Streams belong to learners in blocks, at every step."""
    network = outspoken(StackedPointNetwork(SPEC, 5, 8, SEEDS))
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randint(9, (24, 5, 3), generator=generator).tolist()
    obs = torch.stack([obs_of(points[: 1 + number % 5]) for number, points in enumerate(numbers)]).view(4, 6, -1)
    outputs = network(obs)
    assert outputs.shape == (4, 6, 5)
    weights, biases = network.weights, network.biases
    for t in range(4):
        for stream in range(6):
            learner = stream // 2
            features, present = point_features(SPEC, obs[t, stream])
            hidden = [
                (row @ weights["of_point"][learner] + biases["of_point"][learner, 0]).relu()
                for row in features[present[:, 0]]
            ]
            pooled = [torch.stack(hidden).amax(0), sum(hidden) / len(hidden), point_flags(SPEC, obs[t, stream])]
            of_set = (torch.cat(pooled) @ weights["of_set"][learner] + biases["of_set"][learner, 0]).relu()
            expected = of_set @ weights["heads"][learner] + biases["heads"][learner, 0]
            assert torch.allclose(outputs[t, stream], expected, atol=1e-4)


def test_a_network_is_a_function_of_its_own_seed() -> None:
    network, alone = StackedPointNetwork(SPEC, 5, 8, SEEDS), StackedPointNetwork(SPEC, 5, 8, SEEDS[2:])
    for (name, ours), theirs in zip(network.named_parameters(), alone.parameters(), strict=True):
        assert torch.equal(ours[2], theirs[0])
        assert (ours[0] == ours[1]).all() == name.startswith("biases")
