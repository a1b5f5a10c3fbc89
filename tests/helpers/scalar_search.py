"""Searchers in scalar Python that are told of every move in full, one stream each."""

from itertools import permutations
from typing import Any

import numpy as np
import torch
from stage_one import play
from torch import Tensor
from worlds import scalar_move

from icrl.randomness import Noise, stream_seeds


def pick(options: list[int], noise: float) -> int:
    return options[int(np.float32(noise) * np.float32(len(options)))]


class ScalarSearcher:
    """One stream. `possible` are the cells of each of the goals to find, one after the other in each episode."""

    def __init__(self, possible: list[set[int]], size: int) -> None:
        self.possible, self.size = [set(cells) for cells in possible], size
        self.found, self.stage = [set[int]() for _ in possible], 0

    def distance(self, one: int, other: int) -> int:
        return abs(one // self.size - other // self.size) + abs(one % self.size - other % self.size)

    def wanted(self) -> set[int]:
        return self.found[self.stage] or self.possible[self.stage]

    def act(self, cell: int, noise: float) -> int:
        nearest = min(self.distance(cell, other) for other in self.wanted())
        target = pick(sorted(c for c in self.wanted() if self.distance(cell, c) == nearest), noise)
        shorter = (a for a in (1, 3, 2, 4) if self.distance(scalar_move(self.size, cell, a), target) < nearest)
        return next(shorter, 0)

    def learn(self, cell: int, action: int, landed: int, rewarded: bool, ended: bool) -> None:
        for thing, cells in enumerate(self.possible):
            if thing == self.stage or rewarded:
                cells.discard(landed)
        if rewarded:
            self.found[self.stage] = {landed}
            self.stage = min(self.stage + 1, len(self.possible) - 1)
        if ended:
            self.stage = 0


class ScalarPosteriorSampler(ScalarSearcher):
    target = -1
    begins = True

    def act(self, cell: int, noise: float) -> int:
        if self.begins or self.target not in self.wanted():
            self.target = pick(sorted(self.wanted()), noise)
        ahead = self.distance(cell, self.target)
        shorter = (a for a in (1, 3, 2, 4) if self.distance(scalar_move(self.size, cell, a), self.target) < ahead)
        return next(shorter, 0)

    def learn(self, cell: int, action: int, landed: int, rewarded: bool, ended: bool) -> None:
        super().learn(cell, action, landed, rewarded, ended)
        self.begins = ended


class ScalarPermutedSearcher(ScalarSearcher):
    def __init__(self, possible: list[set[int]], size: int) -> None:
        super().__init__(possible, size)
        self.consistent = list(permutations(range(5)))

    def act(self, cell: int, noise: float) -> int:
        landed = [scalar_move(self.size, cell, move) for move in range(5)]  # the first by staying
        distance = [min(self.distance(after, other) for other in self.wanted()) for after in landed]
        moves = [after <= max(distance[0] - 1, 0) for after in distance]
        likely = [sum(moves[p[action]] for p in self.consistent) for action in range(5)]
        return pick([a for a in range(5) if likely[a] == max(likely)], noise)

    def learn(self, cell: int, action: int, landed: int, rewarded: bool, ended: bool) -> None:
        super().learn(cell, action, landed, rewarded, ended)
        self.consistent = [p for p in self.consistent if scalar_move(self.size, cell, p[action]) == landed]


def play_scalar(env: Any, searcher: ScalarSearcher, goals: list[int], does: Any, seed: Tensor, noise: Tensor) -> Any:
    """(cell, action, reward) of one stream; the environment only says where an episode starts."""
    ended, episode, played = True, -1, []
    for number in noise.tolist():
        if ended:
            episode, timestep, stage = episode + 1, 0, 0
            cell = int(env.start(torch.zeros(1, 1, dtype=torch.long), seed[None], torch.tensor([episode])))
        action = searcher.act(cell, number)
        landed = scalar_move(env.size, cell, does[action])
        reward = landed == goals[stage]
        won = reward and stage == len(goals) - 1
        timestep += 1
        ended = timestep == env.spec.max_episode_steps or (won and getattr(env, "terminate_on_goal", True))
        searcher.learn(cell, action, landed, reward, ended)
        played.append((cell, action, int(reward)))
        cell, stage = landed, stage + (reward and not won)
    return played


def check_search(env: Any, policy: Any, scalar: type[ScalarSearcher], num_goals: int, seed: int) -> None:
    """`policy` plays as `scalar` does: step by step, on a few tasks."""
    all_tasks, size = env.all_tasks(), env.size
    tasks = all_tasks[torch.randperm(len(all_tasks), generator=torch.Generator().manual_seed(seed))[:3]]
    played, _ = play(policy, env, tasks, 60, seed)
    noise = Noise(stream_seeds(seed, len(tasks), purpose=1)).draw(60)
    possible = [set(all_tasks[:, goal].tolist()) for goal in range(num_goals)]
    for stream, task in enumerate(tasks.tolist()):
        does = list(permutations(range(5)))[task[1] if "permutation" in env.task_columns else 0]
        own = stream_seeds(seed, len(tasks))[stream], noise[:, stream]
        expected = play_scalar(env, scalar(possible, size), task[:num_goals], does, *own)
        seen = torch.stack([played.obs % size**2, played.action, played.reward], dim=2)[:, stream]
        assert [tuple(row) for row in seen.tolist()] == expected
