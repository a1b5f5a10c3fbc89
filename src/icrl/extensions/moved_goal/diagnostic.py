"""Diagnostic of a goal that moves: how a policy takes back what it learned.

After half of the episodes the goal moves to that of the next task, and the context is kept. Also measured: whether a
policy visits the goal that its context speaks of before its own, here and in the ablations of the context that show
another task's goal. R runs, G tasks, S streams per task, E episodes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icrl.contracts import Json, Policy, Rollout
from icrl.envs.core import TensorEnv
from icrl.envs.rooms import DarkRoom
from icrl.evaluation.diagnostics import OF_DIAGNOSTIC, Arrays, Diagnostic, Episodes, Runs
from icrl.evaluation.in_context import Adaptation, Job, jobs_playing, joined
from icrl.evaluation.measures import SHARES, Cells, cells_of, intervals, tail_heading, tail_of
from icrl.evaluation.protocol import shown_part
from icrl.evaluation.report import PROBES
from icrl.evaluation.setup import Setup
from icrl.evaluation.tables import aligned, at
from icrl.extensions.moved_goal.world import MovedGoal, moving
from icrl.rl.statistics import Floats, Values

LATER = 10  # episodes after the move at which forgetting is reported
NAME, VISITS = "moved goal", "other_goal_first"
PREFIX = NAME + OF_DIAGNOSTIC
MISLEADING = "other_task"  # ablation whose context shows the goal of another task
_SHOWN = (1, 2, 5, LATER)  # episodes after the move in tables
_AFTER_MOVE = {name: f"{name}_{LATER}_after_move" for name in ("success", VISITS)}
_POSSIBLE = SHARES | dict.fromkeys((VISITS, *_AFTER_MOVE.values()), (0.0, 1.0))


def move_of(num_episodes: int) -> int:
    """Number of episodes before the goal moves: half of them."""
    return num_episodes // 2


class MovedGoalDiagnostic(Diagnostic):
    """Success of the model and of references that forget, before and after the goal moves."""

    name = NAME
    forms = {"moved_goal": PROBES}

    def jobs(self, setup: Setup) -> Iterator[Job]:
        options, tasks = setup.config.evaluation, setup.tasks[setup.main]
        if options.moved_goal and can_move(setup.env, tasks):
            world = MovedGoal(setup.env, move_of(options.num_episodes))
            size = (options.num_probe_streams, options.num_episodes, setup.config.seed)
            for name, policy in movers(setup.policy, setup.learners).items():
                yield from jobs_playing(PREFIX + name, policy, world, moving(tasks), *size)

    def outcome(
        self, setup: Setup, played: Mapping[str, tuple[Adaptation, Rollout]], own: Mapping[str, list[Any]]
    ) -> tuple[Episodes, Arrays]:
        moved = {PREFIX + name: joined(parts) for name, parts in own.items()}
        visits = others_first(setup.env, setup.tasks[setup.main], {**moved, **played})
        return {name: adaptation for name, (adaptation, _) in moved.items()}, {VISITS: visits}

    def add(self, results: Json, runs: Runs) -> None:
        visits = [arrays.get(VISITS, {}) for arrays in runs.arrays]
        known = [name for name in runs.episodes if visits and all(name in run for run in visits)]
        misled = {name: np.stack([run[name] for run in visits]) for name in known}
        num_different = runs.num_different.get(shown_part(results["final"]), 0)
        given = (runs.options, runs.seed, runs.splits, _POSSIBLE | dict(runs.possible), num_different)
        for name in (one for one in results["ablations"] if one in misled):
            for section, numbers in intervals(forgetting(misled[name]), *given).items():
                results["ablations"][name][section] |= numbers
        moved = {name: one for name, one in runs.episodes.items() if name.startswith(PREFIX)}
        for name, played in moved.items():
            cells = cells_of(played, {}, False)
            if name in misled:
                cells |= forgetting(misled[name]) | after_move(played.success, misled[name])
            found = results.setdefault("moved_goal", {})
            found[name.removeprefix(PREFIX)] = {"label": name, **intervals(cells, *given)}
            results["protocol"]["goal_moves_after"] = move_of(played.success.shape[-1])

    def tables(self, results: Json) -> list[str]:
        return [moved_table(results["moved_goal"])] if "moved_goal" in results else []

    def figures(self, results: Json, references: Sequence[str]) -> dict[str, Any]:
        """Success, and visits of the old goal before the new one, of the model and of references that forget."""
        from icrl.plots import style  # noqa: PLC0415, Matplotlib takes a second
        from icrl.plots.figures import adaptation_figure, panel_of  # noqa: PLC0415

        if not (moved := results.get("moved_goal")):
            return {}
        before, others = results["protocol"]["goal_moves_after"], [name for name in moved if name != "model"]
        labels = {"success": "success", VISITS: "visits the first goal before the second"}
        panels = [
            panel_of(label, {name: found["curves"][measure] for name, found in moved.items()}, others)
            for measure, label in labels.items()
        ]
        figure = adaptation_figure(panels, title=f"The goal moves after episode {before}")
        for axes in figure.axes:
            axes.axvline(before + 0.5, color=style.REFERENCE_COLORS[0], linewidth=1)
        return {"moved_goal": figure}


def can_move(env: TensorEnv, tasks: Tensor) -> bool:
    """True in a DarkRoom whose actions are not permuted, with more than one of `tasks` `[G, task_dim]`."""
    return isinstance(env, DarkRoom) and not env.permute_actions and len(tasks) > 1


def movers(policy: Policy[Any], learners: Mapping[str, Policy[Any]]) -> dict[str, Policy[Any]]:
    """Policies to play where the goal moves, by name: the model's, and those of `learners` that forget a goal where a
    move brings no reward, and say so (`forgets`)."""
    forgetful = {name: one for name, one in learners.items() if getattr(one, "forgets", False)}
    return {"model": policy} | forgetful


def other_goal_first(transitions: Rollout, goals: Tensor, others: Tensor, num_episodes: int) -> Floats:
    """1 for each of the first `num_episodes` = E episodes of each stream in which a move ended on the stream's cell in
    `others` before any move ended on its cell in `goals`, `[G]` each; else 0: `[G, S, E]`.

    `transitions` `[T, B]` of a room start with a reset."""
    num_steps, num_streams = transitions.obs.shape
    ended = (transitions.terminated | transitions.truncated).long()
    number = ended.cumsum(0) - ended
    slot = number.clamp(max=num_episodes) + torch.arange(num_streams, device=number.device) * (num_episodes + 1)
    steps = torch.arange(num_steps, device=number.device)[:, None].expand_as(number)

    def first_visit(cells: Tensor) -> Tensor:
        there = transitions.next_obs == cells.to(number.device).repeat_interleave(num_streams // len(cells))
        never = number.new_full((num_streams * (num_episodes + 1),), num_steps)
        return never.scatter_reduce(0, slot[there], steps[there], "amin")

    found = (first_visit(others) < first_visit(goals)).view(len(goals), -1, num_episodes + 1)
    return found[..., :-1].double().cpu().numpy()


def others_first(env: TensorEnv, tasks: Tensor, played: Mapping[str, tuple[Adaptation, Rollout]]) -> dict[str, Floats]:
    """Episodes of `played` on `tasks` `[G, task_dim]` that visit the goal that the context speaks of before their own,
    by policy, `[G, S, E]` each; empty unless goals can move (`can_move`).

    Where the goal moves, it is the first one, against the second. In the ablation that shows another task's goal, it is
    that one."""
    if not can_move(env, tasks):
        return {}
    first, second = moving(tasks[:, :1]).T
    pairs = {name: (second, first) for name in played if name.startswith(PREFIX)}
    pairs |= {MISLEADING: (first, second)} if MISLEADING in played else {}
    return {
        name: other_goal_first(played[name][1], goals, others, played[name][0].success.shape[-1])
        for name, (goals, others) in pairs.items()
    }


def forgetting(misled: Values) -> Cells:
    """Measures of the episodes `misled` `[R, G, S, E]` to another goal."""
    late = misled[..., -tail_of(misled.shape[-1]) :]
    return {("curves", VISITS): misled, ("final", VISITS): late.mean(-1)}


def after_move(success: Values, misled: Values) -> Cells:
    """Measures of an episode after the goal moved, if there are as many; `[R, G, S, E]` each."""
    episode = move_of(misled.shape[-1]) + LATER - 1
    if episode >= misled.shape[-1]:
        return {}
    both = zip(_AFTER_MOVE.values(), (success, misled), strict=True)
    return {("final", name): values[..., episode] for name, values in both}


def moved_table(moved: Mapping[str, Any]) -> str:
    """One row per policy: success in some episodes after the goal moved, and visits of the old goal before the new."""
    num_episodes = len(next(iter(moved.values()))["curves"]["success"]["mean"])
    before, last = move_of(num_episodes), tail_heading(num_episodes)
    after = [later for later in _SHOWN if before + later <= num_episodes]
    rows = list[dict[str, str]]()  # by heading, so an episode that is the whole last quarter is shown once
    for name, numbers in moved.items():
        success, old = numbers["curves"]["success"], numbers["curves"].get(VISITS)
        row = {f"goal moves after episode {before}, success at": name}
        row |= {f"{before + later}": at(success, before + later) for later in (0, *after)}
        row[last] = f"{numbers['final']['success']['mean']:.3f}"
        row |= {f"old first {before + later}": at(old, before + later) for later in after}
        rows.append(row)
    return aligned([[*rows[0]], *([*row.values()] for row in rows)])
