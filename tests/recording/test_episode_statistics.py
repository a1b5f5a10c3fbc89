"""Statistics over the last episodes, against queues that are filled episode by episode."""

from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icrl.contracts import Rollout
from icrl.recording.source_agents import EpisodeStatistics
from icrl.spaces import discrete_spec

NUM_LEARNERS, NUM_ENVS, WINDOW = 2, 2, 3
VALUES = (-1.0, 0.5, 2.0)
SPEC = discrete_spec(9, 5, VALUES, 3, 4, "goal")


def life(seed: int, num_steps: int) -> Rollout:
    """Random rewards and ends, `[T, 4]`, with the clocks that belong to them; the clock alone ends at 4 steps."""
    generator = torch.Generator().manual_seed(seed)
    shape = (num_steps, NUM_LEARNERS * NUM_ENVS)
    reward = torch.randint(len(VALUES), shape, generator=generator)
    terminated = torch.rand(shape, generator=generator) < 0.2
    timestep = torch.zeros_like(reward)
    for t in range(1, num_steps):
        timestep[t] = torch.where(terminated[t - 1] | (timestep[t - 1] == 3), 0, timestep[t - 1] + 1)
    nothing = torch.zeros_like(reward)
    return Rollout(nothing, nothing, SPEC.reward_of(reward), nothing, timestep, terminated, timestep == 3, nothing)


def by_queues(lived: Rollout) -> dict[str, Any]:
    """Each stream keeps its last episodes; a learner's number is the mean over all its streams' episodes."""
    last = [deque(maxlen=WINDOW) for _ in range(NUM_LEARNERS * NUM_ENVS)]
    for stream, episodes in enumerate(last):
        values: list[float] = []
        for t in range(lived.reward.shape[0]):
            values.append(float(lived.reward[t, stream]))
            if lived.terminated[t, stream] or lived.truncated[t, stream]:
                episodes.append((sum(values), values[-1] > 0 and bool(lived.terminated[t, stream]), len(values)))
                values = []
    learners = [[each for envs in last[k : k + NUM_ENVS] for each in envs] for k in range(0, len(last), NUM_ENVS)]
    means = [np.mean(episodes, axis=0) if episodes else [np.nan] * 3 for episodes in learners]
    return dict(zip(("return", "success", "episode_length"), zip(*means, strict=True), strict=True))


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.lists(st.tuples(st.integers(1, 20), st.booleans()), min_size=1, max_size=6))
def test_statistics_equal_queues_over_uneven_blocks(seed: int, blocks: list[tuple[int, bool]]) -> None:
    """Blocks of 1 step, and blocks in which a stream ends more episodes than are kept. Statistics that are restored
    amid episodes go on as the saved ones, which do not change what was saved."""
    lengths = [length for length, _ in blocks]
    lived, statistics = life(seed, sum(lengths)), EpisodeStatistics(SPEC, NUM_LEARNERS, NUM_ENVS, WINDOW)
    parts = zip(*(column.split(lengths) for column in lived), strict=True)
    for (_, resumed), block in zip(blocks, parts, strict=True):
        saved, before = statistics.state_dict(), statistics
        if resumed:
            statistics = EpisodeStatistics(SPEC, NUM_LEARNERS, NUM_ENVS, WINDOW)
            statistics.load_state_dict(saved)
            before.add(Rollout(*block))
        statistics.add(Rollout(*block))
    summary, expected = statistics.summary(), by_queues(lived)
    assert set(summary) == set(expected)
    for name, values in summary.items():
        assert values.tolist() == pytest.approx(expected[name], nan_ok=True)
