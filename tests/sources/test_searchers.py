"""Searchers against scalar Python that is told of every move in full, and the source that distils them."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from probes import CPU, START
from small_worlds import key_to_door
from stage_one import play
from torch import Tensor
from toy import assert_same
from worlds import room, scalar_move

from icrl.config.compose import load_config
from icrl.contracts import ConfigError
from icrl.envs import make_env
from icrl.evaluation.exploration import explored_by
from icrl.extensions.worlds.learners import LinearThompsonSampling, PosteriorSamplingRL, ThompsonSampling
from icrl.randomness import Noise, stream_seeds
from icrl.sources.searchers.explorers import CoveringPlan
from icrl.sources.searchers.rooms import PermutedSearcher, PosteriorSampler, RoomSearcher
from icrl.sources.searchers.searcher import Searcher, relabelled, searcher_of


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


@pytest.mark.parametrize("kind", ["room", "sampled room", "permuted room", "key to door", "sampled key to door"])
@settings(max_examples=8, deadline=None)
@given(st.integers(2, 5), st.booleans(), st.booleans(), st.integers(2, 16), st.integers(0, 10**6))
def test_searchers_equal_a_scalar_search(kind: str, size: int, start: bool, other: bool, num_steps: int, seed: int):
    """Step by step, on a few tasks."""
    options: dict[str, Any] = {"size": size, "random_start": start, "max_episode_steps": num_steps}
    permuted, sampled, num_goals = kind == "permuted room", "sampled" in kind, 2 if "key" in kind else 1
    if num_goals == 2:
        env: Any = key_to_door(show_key=other, **options)
    else:
        env = room(terminate_on_goal=other, permute_actions=permuted, **options)
    kinds = (PosteriorSampler, ScalarPosteriorSampler) if sampled else (RoomSearcher, ScalarSearcher)
    searcher, scalar = (PermutedSearcher, ScalarPermutedSearcher) if permuted else kinds
    policy, all_tasks = searcher(env), env.all_tasks()
    tasks = all_tasks[torch.randperm(len(all_tasks), generator=torch.Generator().manual_seed(seed))[:3]]
    played, _ = play(policy, env, tasks, 60, seed)
    noise = Noise(stream_seeds(seed, len(tasks), purpose=1)).draw(60)
    possible = [set(all_tasks[:, goal].tolist()) for goal in range(num_goals)]
    for stream, task in enumerate(tasks.tolist()):
        does = list(permutations(range(5)))[task[1] if permuted else 0]
        own = stream_seeds(seed, len(tasks))[stream], noise[:, stream]
        expected = play_scalar(env, scalar(possible, size), task[:num_goals], does, *own)
        seen = torch.stack([played.obs % size**2, played.action, played.reward], dim=2)[:, stream]
        assert [tuple(row) for row in seen.tolist()] == expected


# ---- the source

ENV = room(size=5, max_episode_steps=10)
SMALL, TASKS = ("env.size=5", "env.max_episode_steps=10"), ENV.all_tasks().repeat(2, 1)


def searcher_in(*options: str, noise: str = "0.3") -> tuple[Searcher, Any]:
    config: Any = load_config(["source=searcher", f"source.noise={noise}", *options])
    env = make_env(config.env)
    learner = Searcher.create(config, env, env.all_tasks()[:1], stream_seeds(0, 1), CPU)
    learner.set_clock(START)
    return learner, env


def test_noise_mixes_the_searcher_and_random_actions() -> None:
    """In an open room the searcher never stays before it has found the goal, so a stay is a random action."""
    assert_same(*(play(one, ENV, TASKS, 60)[0] for one in (searcher_in(*SMALL, noise="0.0")[0], RoomSearcher(ENV))))
    actions = play(searcher_in(*SMALL, noise="1.0")[0], ENV, TASKS, 500)[0].action
    assert (actions.flatten().bincount(minlength=5) / actions.numel()).tolist() == pytest.approx([0.2] * 5, abs=0.02)
    played = play(searcher_in(*SMALL, noise="0.25")[0], ENV, TASKS, 1000)[0]
    stays = (played.action[played.reward.cumsum(0) == 0] == 0).double().mean()
    assert stays.item() == pytest.approx(0.25 / 5, abs=0.025)
    assert {1, 2, 3, 4} <= set(played.action[0].tolist())  # ties are left to chance
    learner = searcher_in(noise="{kind: linear, progress: percent, points: [[0, 1.0], [1, 0.0]]}")[0]
    learner.set_clock(START._replace(percent=0.75))
    assert learner.update(None).metrics["noise"].tolist() == [0.25]  # type: ignore[arg-type]


def test_a_searcher_concludes_from_the_actions_that_were_done() -> None:
    """Also after random ones: the true permutation is never ruled out, and rewards are credited to their arm."""
    learner, env = searcher_in("env=dark_room_permuted", "env.size=3")
    tasks = env.all_tasks()[::7]
    _, streams = play(learner, env, tasks, 100)
    assert streams.carry.consistent.gather(1, tasks[:, 1:]).all()
    learner, env = searcher_in("env=bandit")
    played, streams = play(learner, env, env.all_tasks()[:40], 50)
    pulled = torch.nn.functional.one_hot(played.action[:-1], env.spec.num_actions)  # the last is not counted yet
    assert torch.equal(streams.carry.count[:, 0], pulled.sum(0).float())
    assert torch.equal(streams.carry.total[:, 0], (pulled * played.reward[:-1, :, None]).sum(0).float())


def test_every_world_has_its_own_searcher_or_is_refused() -> None:
    kinds = {"dark_room": RoomSearcher, "dark_key_to_door": RoomSearcher, "bandit": ThompsonSampling}
    kinds |= {"bandit_linear": LinearThompsonSampling, "garnet": PosteriorSamplingRL, "anymdp": PosteriorSamplingRL}
    for world, kind in (kinds | {"dark_room_permuted": PermutedSearcher}).items():
        assert type(searcher_in(f"env={world}")[0].policy) is kind
    with pytest.raises(ConfigError, match=r"strategy=nearest: there is no such searcher with env\.name=gymnasium"):
        searcher_in("env=gymnasium")
    for world in ("env=bandit", "env.random_start=true", "env=dark_room_permuted"):
        with pytest.raises(ConfigError, match=r"strategy=covering_plan: there is no such searcher with env\.name="):
            searcher_in("source=covering_plan", world)


@pytest.mark.parametrize(
    ("strategy", "covered"),
    [
        ("covering_plan", 1.0),
        ("nearest", 0.872),
        ("posterior_sampling", 0.697),
        ("turning_walk", 0.507),
        ("persistent_walk", 0.458),
        ("uniform_walk", 0.350),
    ],
)
def test_coverage_of_the_default_room_in_four_episodes(strategy: str, covered: float) -> None:
    """The numbers of the documentation, within four standard errors of the mean of 100 streams."""
    env = room()
    searcher = searcher_of(strategy, load_config(["source=searcher"]))
    found = explored_by(searcher, env, 100, seed=3)["coverage"][0, :, 3]
    assert found.mean() == pytest.approx(covered, abs=4 * found.std() / 10 + 0.001)


def test_learners_of_a_task_have_the_levels_of_noise_in_turn() -> None:
    """Learner k of a task has level k, after the last one the first again; learner by learner, stream by stream."""
    config: Any = load_config([*SMALL, "source=covering_plan", "source.noise=[0,0.4]", "source.num_learners=3"])
    learner = Searcher.create(config, ENV, ENV.all_tasks()[:2], stream_seeds(0, 6), CPU)
    learner.set_clock(START)
    levels = [0.0, 0.4, 0.0] * 2
    assert learner.update(None).metrics["noise"].tolist() == pytest.approx(levels)  # type: ignore[arg-type]
    tasks = torch.full((60, 1), 24)  # 10 streams of each learner
    played, plan = play(learner, ENV, tasks, 200)[0], play(CoveringPlan(ENV), ENV, tasks, 200)[0]
    same = (played.obs == plan.obs).all(0).view(6, 10).all(1)
    assert same.tolist() == [level == 0 for level in levels]


@pytest.mark.parametrize("strategy", ["covering_plan", "nearest"])
def test_labels_are_what_the_searcher_does_without_noise(strategy: str) -> None:
    """On its own histories without noise they are the actions that it took (a nearest cell is one of several, so there
    only known goals count). With noise p they differ from the actions where these are random, at p * 4 / 5 of them."""
    for noise, same in (("0.0", 1.0), ("0.5", 0.6)):
        learner = searcher_in(*SMALL, f"source.strategy={strategy}", noise=noise)[0]
        played, _ = play(learner, ENV, TASKS, 300)
        columns = {name: column.T.numpy() for name, column in played._asdict().items()}
        labels = torch.from_numpy(relabelled(searcher_of(strategy, learner_config(strategy)), columns, 5)).T
        known = (played.reward.cumsum(0) - played.reward > 0) | (strategy == "covering_plan")
        assert (labels == played.action)[known].double().mean().item() == pytest.approx(same, abs=0.02 * (same < 1))


def test_labels_of_a_random_walk_follow_what_was_done() -> None:
    """Before the goal is known the label repeats the last move that was done with probability 1/2 + 1/8, not the last
    label, and each other move with 1/8; afterwards it is the step of a shortest path."""
    learner = searcher_in(*SMALL, "source.strategy=uniform_walk", noise="0.0")[0]
    played, _ = play(learner, ENV, TASKS, 400)
    columns = {name: column.T.numpy() for name, column in played._asdict().items()}
    walker = searcher_of("persistent_walk", learner_config("persistent_walk"))
    labels = torch.from_numpy(relabelled(walker, columns, 5)).T
    known = played.reward.cumsum(0) - played.reward > 0
    assert (labels == played.action)[known].all()
    moved = (~known & (played.timestep > 0))[1:] & (played.action[:-1] > 0)
    assert (labels[1:] == played.action[:-1])[moved].double().mean().item() == pytest.approx(0.625, abs=0.03)
    assert (labels > 0)[~known].all()


def learner_config(strategy: str) -> Any:
    return load_config([*SMALL, "source=searcher", f"source.strategy={strategy}"])
