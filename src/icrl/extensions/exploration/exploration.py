"""Exploration of a room without a goal: coverage, and the search after a random episode that is on no plan.

A model may find all cells because it walks memorised paths. So in the off-plan probe the first episode of a stream is
random, the same for all policies, and the policy reads it as its own. A policy that looks where it has not been then
finds more new cells in the next three episodes than its own actions of these episodes in an undisturbed stream with the
same random numbers do: the blind replay. A policy that walks memorised paths finds as many.

S streams, E episodes, C possible goal cells, R runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icrl.contracts import Json, Policy, Rollout, Step
from icrl.envs.policies import Chance
from icrl.envs.rooms import DarkRoom
from icrl.evaluation.diagnostics import OF_DIAGNOSTIC, Arrays, Diagnostic, Episodes, Runs
from icrl.evaluation.in_context import Adaptation, EvaluationConfig, Job, play_steps
from icrl.evaluation.measures import Cells, intervals
from icrl.evaluation.protocol import ABLATIONS
from icrl.evaluation.report import CURVE
from icrl.evaluation.setup import Setup
from icrl.evaluation.tables import aligned, interval_text
from icrl.extensions.probes.probes import Wiped
from icrl.extensions.searchers.explorers import Explorer
from icrl.extensions.searchers.references import COVERING_PLAN
from icrl.extensions.searchers.rooms import RoomSearcher
from icrl.nn.gpt_policy import GPTPolicy
from icrl.rl.statistics import Floats

NUM_OFF_PLAN = 4  # episodes of the off-plan probe, with its random one
_SPARE = 2  # episodes of coverage beyond those in which the best search sees all cells
COVERAGE_KEPT = "model, context kept"
KINDS = COVERAGE, OFF_PLAN, REPLAY = "coverage", "off_plan", "blind_replay"
Explored = dict[str, Floats]  # shares of the cells `[1, S, E]`, by kind


class Exploration(Diagnostic):
    """Exploration of the model, of the policies beside it and of random play in a room without a goal."""

    name = "exploration"
    forms = {section: {str: CURVE} for section in (*KINDS, "coverage_gain", "off_plan_gain")}

    def jobs(self, setup: Setup) -> Iterator[Job]:
        """None in worlds without a covering plan. There are as many streams as those of the probes of all tasks."""
        env, learners = setup.env, setup.learners
        if isinstance(env, DarkRoom) and COVERING_PLAN in learners:
            ours = {COVERAGE_KEPT: setup.policy, ABLATIONS["wiped"]: Wiped(setup.policy)}
            num_streams = setup.config.evaluation.num_probe_streams * len(setup.tasks[setup.main])
            for name, policy in {**ours, **learners, "random": Chance(env.spec)}.items():
                yield (
                    self.name + OF_DIAGNOSTIC + name,
                    partial(explored_by, policy, env, num_streams, setup.config.seed),
                )

    def outcome(
        self, setup: Setup, played: Mapping[str, tuple[Adaptation, Rollout]], own: Mapping[str, list[Explored]]
    ) -> tuple[Episodes, Arrays]:
        return {}, {kind: {name: of[kind] for name, (of,) in own.items() if kind in of} for kind in KINDS}

    def add(self, results: Json, runs: Runs) -> None:
        results |= exploration_numbers(runs.arrays, runs.options, runs.seed, runs.splits)

    def tables(self, results: Json) -> list[str]:
        found = list[str]()
        if coverage := results.get("coverage"):
            found.append(coverage_table(coverage, results.get("coverage_gain", {})))
        if all(results.get(section) for section in ("off_plan", "blind_replay", "off_plan_gain")):
            found.append(off_plan_table(results))
        return found

    def figures(self, results: Json, references: Sequence[str]) -> dict[str, Any]:
        from icrl.plots.figures import adaptation_figure, panel_of  # noqa: PLC0415, Matplotlib takes a second

        if not (coverage := results.get("coverage")):
            return {}
        panel = panel_of("cells visited", coverage, [name for name in references if name in coverage])
        return {"coverage": adaptation_figure([panel], title="Cells visited in a room without a goal")}


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
    cells = env.all_tasks().unique().to(env.starts.device)
    nowhere = env.unsolvable(cells[:1, None])
    steps = play_steps(policy, env, nowhere, num_streams, num_episodes * env.spec.max_episode_steps, seed)
    visited = torch.zeros(num_episodes, num_streams, env.size**2, dtype=torch.bool, device=cells.device)
    by_episode = steps.next_obs.view(num_episodes, -1, num_streams).transpose(1, 2)  # only the clock ends them
    return visited.scatter_(2, by_episode, True)[..., cells]


def exploration_numbers(
    runs: Sequence[Arrays], config: EvaluationConfig, seed: int, splits: Sequence[int] = ()
) -> dict[str, dict[str, Any]]:
    """Sections of `results.json` for each of `KINDS`, and for what memory adds to coverage (`coverage_gain`) and what
    was seen to a blind replay (`off_plan_gain`), given the shares by kind and policy of each run. A section is left out
    if a run has none."""
    shares: Cells = {}
    for kind in KINDS:
        if runs and all(run.get(kind) for run in runs):
            shares |= {(kind, name): np.stack([run[kind][name] for run in runs]) for name in runs[0][kind]}
    pairs = [("coverage_gain", (COVERAGE, COVERAGE_KEPT), (COVERAGE, ABLATIONS["wiped"]))]
    pairs += [("off_plan_gain", (OFF_PLAN, name), (REPLAY, name)) for kind, name in shares if kind == REPLAY]
    gains: Cells = {
        (section, more[1]): shares[more] - shares[less]
        for section, more, less in pairs
        if {more, less} <= shares.keys()
    }
    possible = {name: (0.0, 1.0) for _, name in shares}
    return intervals(shares, config, seed, splits, possible) | intervals(gains, config, seed, splits)


def coverage_table(coverage: Mapping[str, Mapping[str, list[float]]], gain: Mapping[str, Any]) -> str:
    """One row per policy: coverage by the end of each episode without a goal. The last row is the `gain` by memory, if
    there is one."""
    num_episodes = len(next(iter(coverage.values()))["mean"])
    rows = [["cells visited without a goal, by episode", *map(str, range(1, num_episodes + 1))]]
    named = {**coverage} | {f"{name}, minus wiped": curve for name, curve in gain.items()}
    return aligned(rows + [[name, *(f"{share:.3f}" for share in curve["mean"])] for name, curve in named.items()])


def off_plan_table(results: Json) -> str:
    """One row per policy: new cells found after a random first episode, beside those of a blind replay."""
    rows = [["new cells after a random episode, by episode", "2", "3", "4", "blind replay", "difference"]]
    sections = [results[section] for section in ("off_plan", "blind_replay", "off_plan_gain")]
    for name in (name for name in sections[0] if all(name in section for section in sections)):
        found, replay, gain = (section[name] for section in sections)
        last = {end: gain[end][-1] for end in ("mean", "low", "high")}
        row = [name, *(f"{share:.3f}" for share in found["mean"]), f"{replay['mean'][-1]:.3f}"]
        rows.append([*row, interval_text(last, 3)])
    return aligned(rows)
