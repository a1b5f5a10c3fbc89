"""The loop in which a policy acts, against a loop over single steps."""

import torch
from torch import Tensor
from worlds import room, scalar_move

from icrl.contracts import Rollout, Step
from icrl.envs.rollout import Streams, rollout, start_streams
from icrl.randomness import Noise, stream_seeds

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
    assert all(torch.equal(torch.cat(parts), column) for *parts, column in zip(*halves, whole, strict=True))
    for now, now_of_halves in ((streams.state, streams_of_halves.state), (streams.step, streams_of_halves.step)):
        assert all(torch.equal(a, b) for a, b in zip(now, now_of_halves, strict=True))
    assert streams.carry[0] == streams_of_halves.carry[0] == 30


def test_columns_equal_scalar_loop() -> None:
    (transitions,), _ = play(40)
    noise = Noise(stream_seeds(0, NUM_STREAMS, 2)).draw(40)
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
