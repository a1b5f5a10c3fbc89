"""Rollouts against a loop over single steps, and the episodes cut out of transitions."""

import itertools

import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from worlds import room, scalar_move

from icrl.contracts import Rollout, Step
from icrl.envs.rollout import OpenEpisodes, finished_episodes, numbered, rollout, start_streams
from icrl.randomness import Noise, stream_seeds
from icrl.spaces import EnvSpec, discrete_spec

SIZE, LIMIT, NUM_STREAMS = 4, 5, 6
ENV = room(size=SIZE, max_episode_steps=LIMIT, random_start=True)
TASKS = ENV.all_tasks()[:NUM_STREAMS]
SEEDS = stream_seeds(0, NUM_STREAMS, 1)


class Counter:
    """Policy whose actions depend on a count, the last observation, the clock and the noise."""

    def initial_carry(self, num_streams: int) -> tuple[int, Tensor]:
        return 0, torch.zeros(num_streams, dtype=torch.long)

    def act(self, carry: tuple[int, Tensor], step: Step, noise: Tensor) -> tuple[Tensor, tuple[int, Tensor]]:
        times, last_obs = carry
        action = (times + last_obs + step.obs + step.timestep + (noise * 5).long()) % 5
        return action, (times + 1, step.obs)


def test_columns_equal_scalar_loop() -> None:
    """That several rollouts equal one is in `nn/test_gpt_policy.py`."""
    noise = stream_seeds(0, NUM_STREAMS, 2)
    streams = start_streams(Counter(), ENV, TASKS, SEEDS)
    transitions, _ = rollout(Counter(), ENV, streams, 40, Noise(noise))
    noise = Noise(noise).draw(40)
    for stream in range(NUM_STREAMS):
        goal, last_obs, clock = int(TASKS[stream]), 0, 0
        for time in range(40):
            obs = int(transitions.obs[time, stream])
            assert clock == 0 or obs == next_obs  # noqa: F821 - a random start is the environment's affair
            action = (time + last_obs + obs + clock + int(noise[time, stream] * 5)) % 5
            next_obs = scalar_move(SIZE, obs, action)
            terminated, truncated = next_obs == goal, clock + 1 == LIMIT
            *got, best = (column[time, stream].item() for column in transitions)
            assert got == [obs, action, int(terminated), next_obs, clock, terminated, truncated]
            assert (best == 0) == (obs == goal)  # the optimal action of the state acted in: it stays on the goal only
            last_obs, clock = obs, 0 if terminated or truncated else clock + 1
    assert transitions.terminated.any() and transitions.truncated.any()


VALUES = (-0.5, 0.0, 2.0)
SUCCESSES = ["reward", "goal", "end", "survival", "best_action", "return"]
# A step: reward (an index into VALUES), whether the task ended there, whether the action was the optimal one.
STEP = st.tuples(st.integers(0, 2), st.booleans() | st.just(False), st.booleans())
STREAMS = st.integers(1, 4).flatmap(
    lambda count: st.lists(st.lists(STEP, min_size=count, max_size=count), min_size=1, max_size=30)
)


def rollout_of(steps) -> Rollout:
    """`[T][B]` steps with clocks that run as an environment's would: LIMIT steps, then a truncation."""
    reward, terminated, best = (torch.tensor([[step[i] for step in row] for row in steps]) for i in range(3))
    timestep = torch.zeros_like(reward)
    for t in range(1, len(steps)):
        ended = terminated[t - 1] | (timestep[t - 1] + 1 == LIMIT)
        timestep[t] = torch.where(ended, 0, timestep[t - 1] + 1)
    nothing, action = torch.zeros_like(reward), torch.full_like(reward, 3)
    truncated, optimal_action = timestep + 1 == LIMIT, torch.where(best, 3, 4)
    return Rollout(
        nothing, action, torch.tensor(VALUES)[reward], nothing, timestep, terminated, truncated, optimal_action
    )


def step_by_step(steps, success: str) -> list:
    """(stream, return, success, length, steps to the success or the length) of each finished episode."""
    found = []
    for stream in range(len(steps[0])):
        total, length, won_at = 0.0, 0, None
        for row in steps:
            reward, terminated, best = row[stream]
            total, length = total + VALUES[reward], length + 1
            last = terminated or length == LIMIT
            won = {
                "reward": VALUES[reward] > 0,
                "goal": VALUES[reward] > 0 and terminated,
                "end": terminated,
                "survival": last and not terminated,
                "best_action": best and last,
                "return": last and total >= 1.5,
            }[success]
            won_at = length if won and won_at is None else won_at
            if last:
                found.append((stream, total, won_at is not None, length, won_at or length))
                total, length, won_at = 0.0, 0, None
    return found


@settings(max_examples=60)
@given(STREAMS, st.sets(st.integers(1, 29)), st.sampled_from(SUCCESSES))
def test_equals_steps_one_by_one_wherever_rollouts_are_cut(steps, cuts: set[int], success: str) -> None:
    whole, spec = rollout_of(steps), discrete_spec(9, 5, VALUES, 3, LIMIT, success, success_return=1.5)
    still_open, found = OpenEpisodes.none(len(steps[0])), []
    edges = [0, *sorted(cut for cut in cuts if cut < len(steps)), len(steps)]
    for start, stop in itertools.pairwise(edges):
        episodes, still_open = finished_episodes(Rollout(*(column[start:stop] for column in whole)), still_open, spec)
        rows = list(zip(*(column.tolist() for column in episodes), strict=True))
        assert [row[0] for row in rows] == sorted(row[0] for row in rows)
        found += rows
    # Sorting is stable: within a stream the rows stay in order of time.
    assert sorted(found, key=lambda row: row[0]) == step_by_step(steps, success)


@pytest.mark.parametrize(("success", "least"), [("return", 70.0), ("final_reward", 1000.1)])
def test_a_success_is_not_lost_by_rounding_rewards_to_float32(success: str, least: float) -> None:
    """100 rewards of 0.7 are 69.9999988 in float32, and 1000.1 is 1000.09998."""
    spec = EnvSpec(Discrete(9), Discrete(5), (), 0, 100, success, success_return=least)
    zero, last = torch.zeros(100, 1, dtype=torch.long), torch.arange(100)[:, None] == 99
    for reward, won in ((0.7, True), (0.69, False)) if success == "return" else ((1000.1, True), (1000.0, False)):
        rewards, timestep = torch.full((100, 1), reward), torch.arange(100)[:, None]
        played = Rollout(zero, zero, rewards, zero, timestep, zero.bool(), last, zero)
        episodes, _ = finished_episodes(played, OpenEpisodes.none(1), spec)
        assert episodes.success.tolist() == [won] and episodes.steps_to_goal.tolist() == [100]


def test_returns_of_rewards_that_are_listed_as_ints() -> None:
    spec, zero = discrete_spec(9, 5, (0, 3), 3, 2), torch.zeros(2, 1, dtype=torch.long)
    played = Rollout(
        zero, zero, zero + 3.0, zero, torch.tensor([[0], [1]]), zero > 0, torch.tensor([[False], [True]]), zero
    )
    assert finished_episodes(played, OpenEpisodes.none(1), spec)[0].returns.tolist() == [6.0]


@given(st.lists(st.integers(0, 3)).map(sorted))
def test_numbers_count_within_each_stream(stream: list[int]) -> None:
    expected = [sum(other == one for other in stream[:i]) for i, one in enumerate(stream)]
    assert numbered(np.array(stream, dtype=np.int64)).tolist() == expected
