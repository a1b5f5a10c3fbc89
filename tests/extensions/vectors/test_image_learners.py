"""Actor-critics over images: a world that needs them, plain convolutions, independence, refusals."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from probes import CPU, START, learn_from, learn_world, learners_of
from stage_one import check_second_alone, joined
from torch import Tensor
from torch.nn.functional import conv2d
from vector_probes import BUTTONS, VectorProbe, always

from icrl.collection.collect import EpsilonGreedy
from icrl.contracts import ConfigError, Rollout
from icrl.envs.rollout import rollout, start_streams
from icrl.randomness import Noise, stream_seeds
from icrl.spaces import EnvSpec

SIDE, BAR = 8, 3


class Bars(VectorProbe):
    """World of one step: a bar lies anywhere in an image, and the button of its direction pays 1."""

    def __init__(self) -> None:
        super().__init__(BUTTONS, lambda x, a: (x, ((x[:, 0] > 0) == (a > 0)).float(), always(x, True)), varied=True)
        self._start = torch.ones(3)  # direction, row and column
        self.spec = EnvSpec(Box(0, 255, (SIDE, SIDE, 1), np.uint8), BUTTONS, (), 0, 5)

    def observe(self, inner: Tensor) -> Tensor:
        across = inner[:, :1] > 0
        first = ((inner[:, 1:] + 1) / 2 * (SIDE - BAR + 1)).long().clamp(max=SIDE - BAR)  # [B, 2]
        place = torch.arange(SIDE)
        long = (place >= first[..., None]) & (place < first[..., None] + BAR)  # [B, 2, SIDE]
        point = place == first[..., None]
        rows, columns = (torch.where(across, point[:, 0], long[:, 0]), torch.where(across, long[:, 1], point[:, 1]))
        return ((rows[:, :, None] & columns[:, None]).to(torch.uint8) * 200)[..., None]


BARS = Bars()


@pytest.mark.parametrize("kind", ["a2c", "ppo"])
def test_convolutions_solve_a_world_of_images(kind: str) -> None:
    options: dict[str, Any] = {"hidden_size": 16, "learning_rate": 0.01, "discount": 0.5, "entropy_coefficient": 0.0}
    learner = learn_world(learners_of(kind, 1, BARS.spec, body="cnn", **options), BARS, 40, 4, 64)
    streams = start_streams(learner, BARS, torch.zeros(200, 1), stream_seeds(9, 200))
    played, _ = rollout(EpsilonGreedy(learner, 0.0), BARS, streams, 2, Noise(stream_seeds(6, 200)))
    assert played.reward.mean() > 0.95


@pytest.mark.parametrize("shape", [(5, 4, 3), (20, 9, 2)])
def test_rows_equal_those_of_plain_convolutions(shape: tuple[int, ...]) -> None:
    """Learner by learner, for images that are halved and for those that are not."""
    spec = EnvSpec(Box(0, 255, shape, np.uint8), BUTTONS, (), 0, 5)
    learner = learners_of("ppo", 3, spec, body="cnn")
    obs, body = torch.randint(256, (4, 6, *shape), dtype=torch.uint8), learner.network.body
    found = body(obs)
    for k in range(3):
        x = obs[:, 2 * k : 2 * k + 2].flatten(0, 1).movedim(-1, 1) / 255
        for kernel, stride in zip(body.kernels, (1, 1) if shape[0] == 5 else (2, 2, 1), strict=True):
            x = conv2d(x, kernel[k].unflatten(1, (-1, 3, 3)), None, stride, padding=1).relu()
        expected = (x.flatten(1) @ body.linear.weights[0][k]).tanh().unflatten(0, (4, 2))
        torch.testing.assert_close(found[:, 2 * k : 2 * k + 2], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["a2c", "ppo"])
def test_a_learner_learns_the_same_alone(kind: str) -> None:
    def learn(streams: slice, learners: slice) -> tuple[Rollout, Any]:
        options = learners_of(kind, 1, BARS.spec, body="cnn").config
        fresh = type(learners_of(kind, 1, BARS.spec))(options, BARS.spec, stream_seeds(0, 3)[learners], CPU)
        fresh.set_clock(START)
        where = start_streams(fresh, BARS, torch.zeros(6, 1)[streams], stream_seeds(1, 6)[streams])
        noise, lived = Noise(stream_seeds(2, 6)[streams]), []
        for _ in range(5):
            unroll, where = rollout(fresh, BARS, where, 4, noise)
            learn_from(fresh, unroll)
            lived.append(unroll)
        return joined(lived), fresh

    check_second_alone(learn)


def test_convolutions_of_vectors_are_refused() -> None:
    with pytest.raises(ConfigError, match="source.body=cnn reads images"):
        learners_of("a2c", 1, EnvSpec(Box(-1, 1, (3,)), BUTTONS, (), 0, 5), body="cnn")
