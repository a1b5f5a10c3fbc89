"""Exploration of a room without a goal: coverage, and the search after a random episode that is on no plan.

A model may find all cells because it walks memorised paths. So in the off-plan probe the first episode of a stream is
random, the same for all policies, and the policy reads it as its own. A policy that looks where it has not been then
finds more new cells in the next three episodes than its own actions of these episodes in an undisturbed stream with the
same random numbers do: the blind replay. A policy that walks memorised paths finds as many.

S streams, E episodes, C possible goal cells, R runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from icrl.contracts import Policy, Step
from icrl.envs.core import TensorEnv
from icrl.envs.rooms import DarkRoom
from icrl.evaluation.in_context import play_steps
from icrl.evaluation.measures import Cells, intervals
from icrl.evaluation.protocol import ABLATIONS, COVERAGE_KEPT, COVERING_PLAN, label_of
from icrl.evaluation.references import Wiped
from icrl.evaluation.scripted.explorers import Explorer
from icrl.evaluation.scripted.rooms import RoomSearcher
from icrl.evaluation.scripted.unlearned import Chance
from icrl.nn.gpt_policy import GPTPolicy
from icrl.rl.statistics import Floats

if TYPE_CHECKING:
    from icrl.app.root import Config
    from icrl.evaluation.protocol import EvaluationConfig

NUM_OFF_PLAN = 4  # episodes of the off-plan probe, with its random one
_SPARE = 2  # episodes of coverage beyond those in which the best search sees all cells
KINDS = COVERAGE, OFF_PLAN, REPLAY = "coverage", "off_plan", "blind_replay"
Explored = dict[str, Floats]  # shares of the cells `[1, S, E]`, by kind


class OffPlan:
    """Policy whose first `num_steps` actions are random, by the stream's noise alone; it reads them as its own, by its
    `replace_action`."""

    def __init__(self, policy: Any, num_steps: int, num_actions: int) -> None:
        self.policy, self._num_steps, self._num_actions = policy, num_steps, num_actions

    def initial_carry(self, num_streams: int) -> tuple[Any, int]:
        return self.policy.initial_carry(num_streams), 0

    def act(self, carry: tuple[Any, int], step: Step, noise: Tensor) -> tuple[Tensor, tuple[Any, int]]:
        inner, time = carry
        action, inner = self.policy.act(inner, step, noise)
        if time < self._num_steps:
            action = (noise * self._num_actions).long()
            inner = self.policy.replace_action(inner, action)
        return action, (inner, time + 1)


def episodes_of(env: DarkRoom) -> int:
    """Number E of the episodes of coverage: two more than a search without a wasted step needs."""
    return -(-len(env.all_tasks().unique()) // env.spec.max_episode_steps) + _SPARE


def explored_by(policy: Policy[Any], env: DarkRoom, num_streams: int, seed: int) -> Explored:
    """Exploration of a room without a goal by `policy` in S streams.

    `coverage`: share of the possible goal cells visited by the end of each of the first `episodes_of` episodes. A
    visit is a move that ends on the cell, which is what shows a goal. Of policies with a memory of their actions also
    `off_plan`: share first visited between a random first episode and the end of episodes 2, 3, ..., and
    `blind_replay`: the same if the actions of these episodes are those of the undisturbed stream."""
    visits = _visits(policy, env, max(episodes_of(env), NUM_OFF_PLAN), num_streams, seed)
    found = {COVERAGE: visits[: episodes_of(env)].cumsum(0) > 0}
    if isinstance(policy, GPTPolicy | Explorer | RoomSearcher):
        random = OffPlan(policy, env.spec.max_episode_steps, env.spec.num_actions)
        first, *later = _visits(random, env, NUM_OFF_PLAN, num_streams, seed)
        for kind, walked in ((OFF_PLAN, torch.stack(later)), (REPLAY, visits[1:NUM_OFF_PLAN])):
            found[kind] = (walked.cumsum(0) > 0) & ~first
    return {kind: cells.double().mean(2).T.cpu().numpy()[None] for kind, cells in found.items()}


def _visits(policy: Policy[Any], env: DarkRoom, num_episodes: int, num_streams: int, seed: int) -> Tensor:
    """True for the possible goal cells that each episode of each stream visits, `[E, S, C]`. The same actions visit the
    same cells in any stream, because all episodes begin on one cell."""
    cells = env.all_tasks().unique()
    nowhere = env.without_goal(cells[:1, None])
    steps = play_steps(policy, env, nowhere, num_streams, num_episodes * env.spec.max_episode_steps, seed)
    visited = torch.zeros(num_episodes, num_streams, env.size**2, dtype=torch.bool, device=cells.device)
    by_episode = steps.next_obs.view(num_episodes, -1, num_streams).transpose(1, 2)  # only the clock ends them
    return visited.scatter_(2, by_episode, True)[..., cells]


def explorations(
    config: Config, env: TensorEnv, policy: GPTPolicy, learners: Mapping[str, Policy[Any]], num_tasks: int
) -> list[tuple[str, Callable[[], Explored]]]:
    """Jobs that measure the exploration of the model, of `learners` and of random play, by name; none in worlds without
    a covering plan. There are `evaluation.num_probe_streams` streams for each of `num_tasks`."""
    if not (isinstance(env, DarkRoom) and COVERING_PLAN in learners):
        return []
    ours = {COVERAGE_KEPT: policy, label_of("wiped"): Wiped(policy)}
    explorers = {**ours, **learners, "random": Chance(env.spec)}
    num_streams = config.evaluation.num_probe_streams * num_tasks
    return [(name, partial(explored_by, one, env, num_streams, config.seed)) for name, one in explorers.items()]


def by_kind(explored: Mapping[str, Explored]) -> dict[str, dict[str, Floats]]:
    """Results of `explored_by`, given by policy, by kind and policy."""
    return {kind: {name: of[kind] for name, of in explored.items() if kind in of} for kind in KINDS}


def exploration_numbers(
    runs: Sequence[Mapping[str, Mapping[str, Floats]]], config: EvaluationConfig, seed: int, num_splits: int = 1
) -> dict[str, dict[str, Any]]:
    """Sections of `results.json` for each of `KINDS`, and for what memory adds to coverage (`coverage_gain`) and what
    was seen to a blind replay (`off_plan_gain`), given the shares by kind and policy of each run. A section is left out
    if a run has none."""
    shares: Cells = {}
    for kind in KINDS:
        if all(run.get(kind) for run in runs):
            shares |= {(kind, name): np.stack([run[kind][name] for run in runs]) for name in runs[0][kind]}
    pairs = [("coverage_gain", (COVERAGE, COVERAGE_KEPT), (COVERAGE, ABLATIONS["wiped"]))]
    pairs += [("off_plan_gain", (OFF_PLAN, name), (REPLAY, name)) for kind, name in shares if kind == REPLAY]
    gains: Cells = {
        (section, more[1]): shares[more] - shares[less]
        for section, more, less in pairs
        if {more, less} <= shares.keys()
    }
    possible = {name: (0.0, 1.0) for _, name in shares}
    return intervals(shares, config, seed, num_splits, possible) | intervals(gains, config, seed, num_splits)
