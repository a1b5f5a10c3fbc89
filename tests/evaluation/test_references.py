"""References against scalar Python, hand-worked rooms and the field's fixed numbers."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from src.contracts import Step
from src.envs.dark_room import DarkRoom
from src.envs.rollout import rollout, start_streams
from src.envs.tasks import streams_of
from src.evaluation.references import OptimalPolicy, RandomPolicy, Searcher, optimal_exact, random_exact
from src.randomness import Noise, stream_seeds
from src.schema import EnvConfig

MOVES = ((0, 0), (-1, 0), (0, 1), (1, 0), (0, -1))


def _room(size: int = 9, *, random_start: bool = False, terminate: bool = False, num_steps: int = 20) -> DarkRoom:
    return DarkRoom(EnvConfig("dark_room", "test", size, random_start, terminate, num_steps))


def _move(cell: int, action: int, size: int) -> int:
    row, column = cell // size + MOVES[action][0], cell % size + MOVES[action][1]
    return min(max(row, 0), size - 1) * size + min(max(column, 0), size - 1)


def _away(one: int, other: int, size: int) -> int:
    return abs(one // size - other // size) + abs(one % size - other % size)


class _ScalarSearcher:
    """One stream, told of every move in full."""

    def __init__(self, possible: set[int], size: int) -> None:
        self.possible, self.size, self.goal = set(possible), size, -1

    def act(self, cell: int, noise: float) -> int:
        target = self.goal
        if target < 0:
            nearest = min(_away(cell, other, self.size) for other in self.possible)
            tied = sorted(other for other in self.possible if _away(cell, other, self.size) == nearest)
            target = tied[int(np.float32(noise) * np.float32(len(tied)))]
        if target == cell:
            return 0
        return next(
            a
            for a in (1, 3, 2, 4)
            if _away(_move(cell, a, self.size), target, self.size) < _away(cell, target, self.size)
        )

    def learn(self, landed: int, rewarded: bool) -> None:
        self.possible.discard(landed)
        if rewarded:
            self.goal = landed


def _play_scalar(env: DarkRoom, goal: int, seed: Tensor, noise: Tensor) -> list[tuple[int, int, int]]:
    """(cell, action, reward) of one stream; only where an episode starts is asked of the environment."""
    task, episode, timestep = torch.tensor([[goal]]), 0, 0
    searcher = _ScalarSearcher(set(env.all_tasks()[:, 0].tolist()), env.size)
    cell = int(env.start(task, seed[None], torch.tensor([episode])))
    played: list[tuple[int, int, int]] = []
    for number in noise.tolist():
        action = searcher.act(cell, number)
        landed = _move(cell, action, env.size)
        reward = landed == goal
        searcher.learn(landed, reward)
        played.append((cell, action, int(reward)))
        cell, timestep = landed, timestep + 1
        if timestep == env.spec.max_episode_steps or (reward and env.terminate_on_goal):
            episode, timestep = episode + 1, 0
            cell = int(env.start(task, seed[None], torch.tensor([episode])))
    return played


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 6), st.booleans(), st.booleans(), st.integers(1, 12), st.integers(0, 10**6))
def test_searcher_equals_a_scalar_one(
    size: int, random_start: bool, terminate: bool, num_steps: int, seed: int
) -> None:
    env = _room(size, random_start=random_start, terminate=terminate, num_steps=num_steps)
    tasks = env.all_tasks()[torch.randperm(len(env.all_tasks()), generator=torch.Generator().manual_seed(seed))[:3]]
    seeds, noise_seeds = stream_seeds(seed, len(tasks)), stream_seeds(seed, len(tasks), purpose=1)
    policy = Searcher(env)
    played, _ = rollout(policy, env, start_streams(policy, env, tasks, seeds), 60, Noise(noise_seeds))
    noise = Noise(noise_seeds).draw(60)
    for stream, goal in enumerate(tasks[:, 0].tolist()):
        expected = _play_scalar(env, goal, seeds[stream], noise[:, stream])
        seen = torch.stack([played.obs, played.action, played.reward], dim=2)[:, stream]
        assert [tuple(row) for row in seen.tolist()] == expected


def test_searcher_matches_the_known_curve() -> None:
    """Returns of episodes 1 to 7 in the classic room, within what tie-breaking rules differ by."""
    env = _room()
    tasks = streams_of(env.all_tasks(), 20)
    policy = Searcher(env)
    streams = start_streams(policy, env, tasks, stream_seeds(0, len(tasks)))
    played, _ = rollout(policy, env, streams, 7 * 20, Noise(stream_seeds(1, len(tasks))))
    returns = played.reward.view(7, 20, -1).sum(1).double().mean(1)
    low = torch.tensor([2.4, 6.3, 9.8, 12.9, 15.5, 16.4, 16.5]).double()
    high = torch.tensor([2.8, 6.9, 10.7, 14.5, 16.5, 16.5, 16.5]).double()
    assert ((low <= returns) & (returns <= high)).all(), returns


def test_random_policy_is_uniform() -> None:
    numbers = Noise(stream_seeds(0, 50_000)).draw(1)[0]
    step = Step(*[torch.zeros(50_000, dtype=torch.long)] * 6)
    action, carry = RandomPolicy(5).act((), step, numbers)
    assert carry == ()
    counts = action.bincount()
    assert len(counts) == 5
    assert ((counts - 10_000).abs() < 4 * (50_000 * 0.2 * 0.8) ** 0.5).all()
    largest = torch.tensor([1 - 2**-24])
    assert all(RandomPolicy(n).act((), step, largest)[0] == n - 1 for n in range(1, 20))


@pytest.mark.parametrize("random_start", [False, True])
@pytest.mark.parametrize("terminate", [False, True])
def test_optimal_policy_earns_what_is_expected_of_it(random_start: bool, terminate: bool) -> None:
    env = _room(5, random_start=random_start, terminate=terminate, num_steps=6)
    tasks = streams_of(env.all_tasks(), 300)
    policy = OptimalPolicy(env, tasks)
    streams = start_streams(policy, env, tasks, stream_seeds(0, len(tasks)))
    played, _ = rollout(policy, env, streams, 6, Noise(stream_seeds(1, len(tasks))))
    open_ = (played.terminated.cumsum(0) - played.terminated.long()) == 0  # the first episode
    returns = (played.reward * open_).sum(0).double().unflatten(0, (-1, 300))
    expected = optimal_exact(env, env.all_tasks())
    error = 5 * returns.std(dim=1) / 300**0.5 + 1e-9
    assert ((returns.mean(1) - expected.episode_return).abs() <= error).all()
    with pytest.raises(ValueError, match="3 streams"):
        policy.initial_carry(3)


def _enumerate(env: DarkRoom, goal: int, starts: list[int]) -> tuple[float, float, float]:
    """Return, success and steps to the goal, averaged over every start and every sequence of actions."""
    limit = env.spec.max_episode_steps
    results: list[tuple[int, int, int]] = []
    for start, actions in itertools.product(starts, itertools.product(range(5), repeat=limit)):
        cell, rewards = start, list[int]()
        for action in actions:
            cell = _move(cell, action, env.size)
            rewards.append(int(cell == goal))
            if rewards[-1] and env.terminate_on_goal:
                break
        results.append((sum(rewards), max(rewards), rewards.index(1) + 1 if any(rewards) else limit))
    episode_return, success, steps = np.mean(results, axis=0)
    return episode_return, success, steps


@settings(max_examples=15, deadline=None)
@given(st.data(), st.integers(2, 4), st.booleans(), st.booleans(), st.integers(1, 4))
def test_random_exact_equals_enumeration(
    data: st.DataObject, size: int, random_start: bool, terminate: bool, num_steps: int
) -> None:
    env = _room(size, random_start=random_start, terminate=terminate, num_steps=num_steps)
    goal = data.draw(st.sampled_from(env.all_tasks()[:, 0].tolist()))
    starts = list(range(size * size)) if random_start else [(size // 2) * (size + 1)]
    exact = random_exact(env, torch.tensor([[goal]]))
    np.testing.assert_allclose([float(value) for value in exact], _enumerate(env, goal, starts), rtol=1e-12)


def test_random_exact_by_hand() -> None:
    """3 x 3, two steps, goal above the centre: 1/5 at once, 1/25 by staying first; once there, stay or bump: 2/5."""
    goal = torch.tensor([[1]])
    for terminate, episode_return in ((True, 0.24), (False, 0.2 + 0.2 * 0.4 + 0.04)):
        exact = random_exact(_room(3, terminate=terminate, num_steps=2), goal)
        assert [float(value) for value in exact] == pytest.approx([episode_return, 0.24, 0.2 * 1 + 0.8 * 2])


@pytest.mark.parametrize("random_start", [False, True])
@pytest.mark.parametrize("num_steps", [3, 20])
def test_optimal_exact_is_a_function_of_distance(random_start: bool, num_steps: int) -> None:
    """A goal d moves away pays at steps max(d, 1), ..., M: standing on it pays only after a step."""
    env = _room(random_start=random_start, num_steps=num_steps)
    starts = range(81) if random_start else [40]
    exact = optimal_exact(env, env.all_tasks())
    for task, goal in enumerate(env.all_tasks()[:, 0].tolist()):
        first = np.array([max(_away(start, goal, 9), 1) for start in starts])
        reached = first <= num_steps
        assert exact.episode_return[task] == pytest.approx(np.mean((num_steps + 1 - first) * reached))
        assert exact.success[task] == pytest.approx(reached.mean())
        assert exact.steps_to_goal[task] == pytest.approx(np.minimum(first, num_steps).mean())


def test_fixed_numbers_of_the_field() -> None:
    """9 x 9, 20 steps, 80 goals, start in the centre."""
    classic, terminating = _room(), _room(terminate=True)
    tasks = classic.all_tasks()
    assert len(tasks) == 80
    assert random_exact(classic, tasks).episode_return.mean() == pytest.approx(0.235, abs=5e-4)
    assert random_exact(terminating, tasks).success.mean() == pytest.approx(0.120, abs=5e-4)
    assert random_exact(terminating, tasks).steps_to_goal.mean() == pytest.approx(18.7, abs=0.05)
    assert optimal_exact(classic, tasks).episode_return.mean() == pytest.approx(16.5)
    assert optimal_exact(terminating, tasks).steps_to_goal.mean() == pytest.approx(4.5)
    assert optimal_exact(terminating, tasks).success.min() == pytest.approx(1.0)


def test_random_play_agrees_with_random_exact() -> None:
    env = _room(4, num_steps=10)
    tasks = streams_of(env.all_tasks(), 2000)
    policy = RandomPolicy(env.spec.num_actions)
    streams = start_streams(policy, env, tasks, stream_seeds(0, len(tasks)))
    played, _ = rollout(policy, env, streams, 10, Noise(stream_seeds(1, len(tasks))))
    returns = played.reward.sum(0).double().unflatten(0, (-1, 2000))
    exact = random_exact(env, env.all_tasks()).episode_return
    assert ((returns.mean(1) - exact).abs() < 4.5 * returns.std(dim=1) / 2000**0.5).all()
