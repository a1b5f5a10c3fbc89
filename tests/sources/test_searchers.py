"""Searchers against scalar Python that is told of every move in full, and against the field's fixed numbers."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from icrl.config.compose import load_config
from icrl.config.env_schema import DarkRoomConfig, KeyToDoorConfig
from icrl.contracts import Policy
from icrl.envs import make_env
from icrl.envs.dark_key_to_door import DarkKeyToDoor
from icrl.envs.dark_room import DarkRoom
from icrl.envs.exact import optimal_exact
from icrl.envs.rollout import rollout, start_streams
from icrl.envs.tasks import streams_of
from icrl.evaluation.in_context import play_episodes
from icrl.randomness import Noise, stream_seeds
from icrl.sources.room_searchers import PermutedSearcher, Searcher, chosen

MOVES = ((0, 0), (-1, 0), (0, 1), (1, 0), (0, -1))
NUM_STEPS = 60


def room(size: int, random_start: bool, terminate: bool, num_steps: int, permute: bool = False) -> DarkRoom:
    return DarkRoom(DarkRoomConfig("dark_room", "test", num_steps, size, random_start, terminate, permute))


def moved(cell: int, move: int, size: int) -> int:
    row, column = cell // size + MOVES[move][0], cell % size + MOVES[move][1]
    return min(max(row, 0), size - 1) * size + min(max(column, 0), size - 1)


def away(one: int, other: int, size: int) -> int:
    return abs(one // size - other // size) + abs(one % size - other % size)


def pick(options: list[int], noise: float) -> int:
    return options[int(np.float32(noise) * np.float32(len(options)))]


class ScalarSearcher:
    """One stream. `possible` are the cells of each of the things to find, one after the other in each episode."""

    def __init__(self, possible: list[set[int]], size: int) -> None:
        self.possible, self.size = [set(cells) for cells in possible], size
        self.found: list[int | None] = [None] * len(possible)
        self.stage = 0

    def wanted(self) -> set[int]:
        found = self.found[self.stage]
        return self.possible[self.stage] if found is None else {found}

    def act(self, cell: int, noise: float) -> int:
        nearest = min(away(cell, other, self.size) for other in self.wanted())
        target = pick(sorted(c for c in self.wanted() if away(cell, c, self.size) == nearest), noise)
        shorter = (a for a in (1, 3, 2, 4) if away(moved(cell, a, self.size), target, self.size) < nearest)
        return next(shorter, 0)

    def learn(self, cell: int, action: int, landed: int, rewarded: bool, ended: bool) -> None:
        for thing, cells in enumerate(self.possible):
            if thing == self.stage or rewarded:
                cells.discard(landed)
        if rewarded:
            self.found[self.stage] = landed
            self.stage = min(self.stage + 1, len(self.possible) - 1)
        if ended:
            self.stage = 0


class ScalarPermutedSearcher(ScalarSearcher):
    def __init__(self, possible: list[set[int]], size: int) -> None:
        super().__init__(possible, size)
        self.consistent = list(permutations(range(5)))

    def act(self, cell: int, noise: float) -> int:
        def distance(c: int) -> int:
            return min(away(c, other, self.size) for other in self.wanted())

        goal = max(distance(cell) - 1, 0)
        likely = [sum(distance(moved(cell, p[a], self.size)) <= goal for p in self.consistent) for a in range(5)]
        return pick([a for a in range(5) if likely[a] == max(likely)], noise)

    def learn(self, cell: int, action: int, landed: int, rewarded: bool, ended: bool) -> None:
        super().learn(cell, action, landed, rewarded, ended)
        self.consistent = [p for p in self.consistent if moved(cell, p[action], self.size) == landed]


def play_scalar(
    env: DarkRoom | DarkKeyToDoor,
    searcher: ScalarSearcher,
    goals: list[int],
    does: list[int],
    seed: Tensor,
    noise: Tensor,
) -> list[tuple[int, int, int]]:
    """(cell, action, reward) of one stream; only where an episode starts is asked of the environment."""
    ends_on_last = env.terminate_on_goal if isinstance(env, DarkRoom) else True
    episode, timestep, stage = 0, 0, 0
    cell = int(env.start(seed[None], torch.tensor([episode])))
    played: list[tuple[int, int, int]] = []
    for number in noise.tolist():
        action = searcher.act(cell, number)
        landed = moved(cell, does[action], env.size)
        reward = landed == goals[stage]
        last = stage == len(goals) - 1
        ended = timestep + 1 == env.spec.max_episode_steps or (reward and last and ends_on_last)
        searcher.learn(cell, action, landed, reward, ended)
        played.append((cell, action, int(reward)))
        cell, timestep, stage = landed, timestep + 1, stage + (reward and not last)
        if ended:
            episode, timestep, stage = episode + 1, 0, 0
            cell = int(env.start(seed[None], torch.tensor([episode])))
    return played


def check_equal(env: DarkRoom | DarkKeyToDoor, policy: Policy[Any], scalar: type[ScalarSearcher], seed: int) -> None:
    """On a few tasks: what `policy` does is what `scalar` does."""
    all_tasks = env.all_tasks()
    tasks = all_tasks[torch.randperm(len(all_tasks), generator=torch.Generator().manual_seed(seed))[:3]]
    seeds, noise_seeds = stream_seeds(seed, len(tasks)), stream_seeds(seed, len(tasks), purpose=1)
    played, _ = rollout(policy, env, start_streams(policy, env, tasks, seeds), NUM_STEPS, Noise(noise_seeds))
    noise = Noise(noise_seeds).draw(NUM_STEPS)
    num_goals = 2 if isinstance(env, DarkKeyToDoor) else 1
    possible = [set(all_tasks[:, goal].tolist()) for goal in range(num_goals)]
    for stream, task in enumerate(tasks.tolist()):
        does = list(range(5)) if num_goals == len(task) else list(permutations(range(5)))[task[1]]
        searcher = scalar(possible, env.size)
        expected = play_scalar(env, searcher, task[:num_goals], does, seeds[stream], noise[:, stream])
        seen = torch.stack([played.obs % env.size**2, played.action, played.reward], dim=2)[:, stream]
        assert [tuple(row) for row in seen.tolist()] == expected


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 6), st.booleans(), st.booleans(), st.integers(1, 12), st.integers(0, 10**6))
def test_dark_room_equals_a_scalar_search(
    size: int, random_start: bool, terminate: bool, num_steps: int, seed: int
) -> None:
    env = room(size, random_start, terminate, num_steps)
    check_equal(env, Searcher(env), ScalarSearcher, seed)


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 5), st.booleans(), st.booleans(), st.integers(2, 20), st.integers(0, 10**6))
def test_key_to_door_equals_a_scalar_search(
    size: int, random_start: bool, show_key: bool, num_steps: int, seed: int
) -> None:
    env = DarkKeyToDoor(KeyToDoorConfig("dark_key_to_door", "test", num_steps, size, random_start, show_key))
    check_equal(env, Searcher(env), ScalarSearcher, seed)


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 5), st.booleans(), st.booleans(), st.integers(1, 12), st.integers(0, 10**6))
def test_permuted_actions_equal_a_scalar_search(
    size: int, random_start: bool, terminate: bool, num_steps: int, seed: int
) -> None:
    env = room(size, random_start, terminate, num_steps, permute=True)
    check_equal(env, PermutedSearcher(env), ScalarPermutedSearcher, seed)


def test_the_classic_room_matches_the_known_curve() -> None:
    """Returns of episodes 1 to 7, within what tie-breaking rules differ by."""
    env = room(9, random_start=False, terminate=False, num_steps=20)
    tasks = streams_of(env.all_tasks(), 20)
    policy = Searcher(env)
    streams = start_streams(policy, env, tasks, stream_seeds(0, len(tasks)))
    played, _ = rollout(policy, env, streams, 7 * 20, Noise(stream_seeds(1, len(tasks))))
    returns = played.reward.view(7, 20, -1).sum(1).double().mean(1)
    low = torch.tensor([2.4, 6.3, 9.8, 12.9, 15.5, 16.4, 16.5]).double()
    high = torch.tensor([2.8, 6.9, 10.7, 14.5, 16.5, 16.5, 16.5]).double()
    assert ((low <= returns) & (returns <= high)).all(), returns


@pytest.mark.parametrize("name", ["dark_room", "dark_room_permuted", "dark_key_to_door", "dark_key_to_door_hidden"])
def test_all_tasks_are_solved_for_good(name: str) -> None:
    """After few episodes; in rooms with one start in as few steps as the best play takes."""
    env = make_env(load_config([f"env={name}", "env.size=5"]).env)
    tasks = env.all_tasks()[::7][:40]
    policy = PermutedSearcher(env) if name == "dark_room_permuted" else Searcher(env)
    found, _ = play_episodes(policy, env, tasks, 3, 8, seed=0)
    assert found.success[..., 4:].all()
    assert found.success[..., 0].mean() < 1
    if len(env.starts) == 1:
        best = optimal_exact(env, tasks).steps_to_goal.numpy()
        np.testing.assert_array_equal(found.steps_to_goal[..., -1], np.broadcast_to(best[:, None], (len(tasks), 3)))


def test_chosen_is_uniform_over_what_is_allowed() -> None:
    allowed = torch.tensor([[False, True, False, True, True]]).expand(3000, -1)
    noise = torch.arange(3000) / 3000
    assert chosen(allowed, noise).bincount(minlength=5).tolist() == [0, 1000, 0, 1000, 1000]
    assert chosen(allowed[:1], torch.tensor([1 - 2**-24])).tolist() == [4]
