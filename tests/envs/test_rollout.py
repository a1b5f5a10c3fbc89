"""The loop in which everything acts."""

import torch
from torch import Tensor
from worlds import MOVES, room

from icrl.contracts import Rollout, Step
from icrl.envs.rollout import Streams, rollout, start_streams
from icrl.randomness import Noise, stream_seeds

SIZE, LIMIT, NUM_STREAMS = 4, 5, 6
ENV = room(size=SIZE, max_episode_steps=LIMIT, random_start=True)
TASKS = ENV.all_tasks()[:NUM_STREAMS]
SEEDS = stream_seeds(0, NUM_STREAMS, 1)


class Counter:
    """Remembers how often it acted and the last observation, and lets both, the clock and the noise decide."""

    def initial_carry(self, num_streams: int) -> tuple[int, Tensor]:
        return 0, torch.zeros(num_streams, dtype=torch.long)

    def act(self, carry: tuple[int, Tensor], step: Step, noise: Tensor) -> tuple[Tensor, tuple[int, Tensor]]:
        times, last_obs = carry
        action = (times + last_obs + step.obs + step.timestep + (noise * 5).long()) % 5
        return action, (times + 1, step.obs)


def play(*lengths: int) -> tuple[list[Rollout], Streams]:
    streams, noise = start_streams(Counter(), ENV, TASKS, SEEDS), Noise(stream_seeds(0, NUM_STREAMS, 2))
    rollouts = []
    for length in lengths:
        transitions, streams = rollout(Counter(), ENV, streams, length, noise)
        rollouts.append(transitions)
    return rollouts, streams


def test_two_rollouts_equal_one_of_both_lengths() -> None:
    halves, streams_of_halves = play(13, 17)
    (whole,), streams = play(30)
    for *parts, column in zip(*halves, whole, strict=True):
        assert torch.equal(torch.cat(parts), column)
    for now, now_of_halves in ((streams.state, streams_of_halves.state), (streams.step, streams_of_halves.step)):
        assert all(torch.equal(a, b) for a, b in zip(now, now_of_halves, strict=True))
    assert streams.carry[0] == streams_of_halves.carry[0] == 30


def test_columns_equal_scalar_loop() -> None:
    """Each stream by itself: state, observation and clock in plain integers, moves on a grid of (row, column)."""
    (transitions,), _ = play(40)
    starts = start_streams(Counter(), ENV, TASKS, SEEDS).step.obs
    noise = Noise(stream_seeds(0, NUM_STREAMS, 2)).draw(40)
    for stream in range(NUM_STREAMS):
        goal, obs, last_obs, clock = int(TASKS[stream]), int(starts[stream]), 0, 0
        for time in range(40):
            action = (time + last_obs + obs + clock + int(noise[time, stream] * 5)) % 5
            row, column = (min(max(a + b, 0), SIZE - 1) for a, b in zip(divmod(obs, SIZE), MOVES[action], strict=True))
            next_obs = row * SIZE + column
            terminated, truncated = next_obs == goal, clock + 1 == LIMIT
            got = [column[time, stream].item() for column in transitions[:-1]]
            assert got == [obs, action, int(terminated), next_obs, clock, terminated, truncated]
            last_obs = obs
            if terminated or truncated:  # where the next episode starts is the environment's affair
                obs, clock = int(transitions.obs[time + 1, stream]) if time < 39 else 0, 0
            else:
                obs, clock = next_obs, clock + 1
    assert transitions.terminated.any() and transitions.truncated.any()


def test_optimal_action_is_that_of_the_state_acted_in() -> None:
    (transitions,), _ = play(40)
    goal = TASKS[:, 0].expand_as(transitions.obs)
    state = ENV.reset(TASKS, SEEDS)[0]
    for time in range(40):
        here = state._replace(state_index=transitions.obs[time])
        assert torch.equal(transitions.optimal_action[time], ENV.optimal_action(here))
    assert ((transitions.optimal_action == 0) == (transitions.obs == goal)).all()  # it stays on the goal only


def test_a_policy_without_noise_gets_the_same_columns_whatever_the_seed() -> None:
    """Noise reaches the actions by the policy alone."""

    class Up:
        def initial_carry(self, num_streams: int) -> tuple[()]:
            return ()

        def act(self, carry: tuple[()], step: Step, noise: Tensor) -> tuple[Tensor, tuple[()]]:
            return torch.ones_like(step.obs), ()

    columns = [
        rollout(Up(), ENV, start_streams(Up(), ENV, TASKS, SEEDS), 12, Noise(stream_seeds(seed, NUM_STREAMS)))[0]
        for seed in (0, 1)
    ]
    assert all(torch.equal(a, b) for a, b in zip(*columns, strict=True))
