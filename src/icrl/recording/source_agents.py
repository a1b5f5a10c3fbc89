"""Curves of source agents during stage one, and their examination after it. G training tasks, K learners per task, L
learners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from icrl.contracts import Env, Rollout
from icrl.envs.core import State, TensorEnv
from icrl.envs.rollout import OpenEpisodes, finished_episodes, numbered
from icrl.evaluation.diagnostics import filming
from icrl.evaluation.in_context import play_episodes
from icrl.evaluation.references import exact_references
from icrl.evaluation.tables import LABELS
from icrl.plots import style
from icrl.plots.figures import success_figure
from icrl.runs.metrics import INSPECTORS, MetricLogger, distribution, shown
from icrl.runs.processes import Progress
from icrl.sources.collect import Learner
from icrl.sources.options import clock_of, due_steps, env_steps, num_iterations
from icrl.spaces import EnvSpec

if TYPE_CHECKING:
    from icrl.app.root import Config

SOLVED = 0.9  # success over its last episodes from which on an agent counts as having solved its task
NUM_EPISODES = 10  # newest of each stream, which curves and pictures are over
MOST_EXACT = 100  # tasks over which exact returns beside those of agents are averaged
MOST_PENDING = 100  # unrolls in memory before they are added to the averages
_MEASURES = ("return", "success", "episode_length")


class EpisodeStatistics:
    """Return, success and length of the latest `window` episodes of every stream, averaged for each learner."""

    def __init__(self, spec: EnvSpec, num_learners: int, num_envs: int, window: int = NUM_EPISODES) -> None:
        num_streams, self._num_learners, self._spec = num_learners * num_envs, num_learners, spec
        self._last = np.full((len(_MEASURES), num_streams, window), np.nan)
        self._count, self._open = np.zeros(num_streams, np.int64), OpenEpisodes.none(num_streams)
        self._pending: list[Rollout] = []

    def add(self, transitions: Rollout) -> None:
        """Add the episodes that end in `[T, B]` transitions; processing may wait until the next `summary`."""
        self._pending.append(transitions)
        if len(self._pending) >= MOST_PENDING:
            self._take_in()

    def summary(self) -> dict[str, np.ndarray]:
        """`return`, `success` and `episode_length` per learner, `[L]`; NaN if no episode has ended yet."""
        self._take_in()
        last = self._last.reshape(len(_MEASURES), self._num_learners, -1)
        ended = (~np.isnan(last[0])).sum(axis=-1)  # [L]
        means = np.where(ended > 0, np.nansum(last, axis=-1) / np.maximum(ended, 1), np.nan)
        return dict(zip(_MEASURES, means, strict=True))

    def state_dict(self) -> dict[str, Any]:
        self._take_in()
        arrays = (self._last, self._count, *self._open)
        return {"arrays": [torch.from_numpy(array.copy()) for array in arrays]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._last, self._count, *still_open = (array.cpu().numpy().copy() for array in state["arrays"])
        self._open = OpenEpisodes(*still_open)

    def _take_in(self) -> None:
        if not self._pending:
            return
        transitions = Rollout.joined(self._pending)
        self._pending.clear()
        episodes, self._open = finished_episodes(transitions, self._open, self._spec)
        slot = (self._count[episodes.stream] + numbered(episodes.stream)) % self._last.shape[-1]
        self._last[:, episodes.stream, slot] = (episodes.returns, episodes.success, episodes.length)
        np.add.at(self._count, episodes.stream, 1)


class SourceCurves:
    """Curves over env steps per learner: mean and band over learners, and the fraction that solved its task."""

    def __init__(self, config: Config, env: Env[State], tasks: Tensor, first: int) -> None:
        """Curves of a run on `tasks` `[G, task_dim]` that resumes from iteration `first`."""
        self._source, self._options = source, options = config.source, config.summaries
        folder, num_learners = config.folder("logs") / "source", len(tasks) * source.num_learners
        done = due_steps(source, first) * source.num_envs  # env steps of one learner
        amounts = env_steps(source) * num_learners, done * num_learners, "step"
        if source.trains_on:  # the steps end before the run does
            amounts = num_iterations(source) - source.pretraining, max(first - source.pretraining, 0), "iteration"
        progress = Progress("train_agents", *amounts)
        self.logger = MetricLogger(folder, done, options, num_iterations(source), progress)
        self.loggers = [self.logger]
        if first < source.pretraining:  # in a folder of its own, because resuming at a step hides all later points
            updates = clock_of(source, first).updates
            self.loggers.append(MetricLogger(folder / "pretraining", updates, options, source.pretraining))
        self._learned = ""
        self.statistics = EpisodeStatistics(env.spec, num_learners, source.num_envs)
        exact = exact_references(env, tasks[:MOST_EXACT]) if isinstance(env, TensorEnv) else {}
        beside = [f"{name} {np.mean(found['returns']):.3g}" for name, found in exact.items()]
        self._beside = f" ({', '.join(beside)})" if beside else ""

    def add(self, iteration: int, transitions: Rollout, metrics: dict[str, Tensor], learner: Learner) -> None:
        """Take in one iteration: its transitions `[T, B]`, metrics `[L]` and the learners after it. Metrics after the
        last env step (T = 0) are shown over steps as if they went on; before the first one, over updates."""
        if iteration <= self._source.pretraining:
            if self.loggers[-1].due(iteration):
                self.loggers[-1].scalars("pretraining", means_of(metrics), clock_of(self._source, iteration).updates)
            return
        played = len(transitions.obs) > 0
        self.logger.progress.advance(1 if self._source.trains_on else transitions.reward.numel())
        if played:
            self.statistics.add(transitions)
        if not self.logger.due(iteration):
            return
        steps = due_steps(self._source, iteration) * self._source.num_envs
        self.logger.scalars("update", means_of(metrics), steps)
        if played:
            self._learned = self._add_episodes(steps, transitions, learner)
        self.logger.progress.tell(self._learned)

    def _add_episodes(self, steps: int, transitions: Rollout, learner: Learner) -> str:
        """Show the latest episodes and what is inspected; returns words for the progress line: their return, beside
        that of references, and unless there is none their success, with the fraction of tasks that are solved."""
        summary = self.statistics.summary()
        all_ended = not np.isnan(summary["return"]).any()  # before, only agents that were lucky have ended an episode
        for name, values in summary.items():
            if all_ended:
                self.logger.scalars(f"source/{name}", distribution(values), steps)
        solved = {"fraction_solved": float((summary["success"] >= SOLVED).mean())}
        self.logger.scalars("source", solved, steps)
        if self._options.details:
            INSPECTORS[-1].show_agents(self.logger, steps, learner, transitions)
        told = shown({"solved": solved["fraction_solved"]})
        if not all_ended:
            return told
        means = {name: float(summary[name].mean()) for name in ("return", "success")}
        returns = f"{shown({'return': means['return']})}{self._beside}"
        return f"{returns}  {shown({'success': means['success']})}  {told}" if means["success"] else returns


def means_of(metrics: dict[str, Tensor]) -> dict[str, float]:
    """Means of `metrics` `[L]` over all learners."""
    return {name: value.mean().item() for name, value in metrics.items()}


def examine(config: Config, env: TensorEnv, learner: Learner, tasks: Tensor, held_out: list[int]) -> dict[str, Any]:
    """Success of the trained agents of `tasks` `[G, task_dim]` on fresh episodes, and if there is none their mean
    return, with a picture on TensorBoard and films of agents. Agents that learn in context first play as many episodes
    as an evaluation has."""
    source, num_tasks = config.source, len(tasks)
    num_episodes = max(NUM_EPISODES, config.evaluation.num_episodes) if source.in_context else NUM_EPISODES
    num_streams = source.num_learners * source.num_envs
    with Progress("trained agents", num_episodes, 0, "episode of each") as progress:
        adaptation, played = play_episodes(learner, env, tasks, num_streams, num_episodes, config.seed, 0, progress)
    last = (values[..., -NUM_EPISODES:] for values in (adaptation.success, adaptation.returns))
    success, returns = (values.reshape(num_tasks, source.num_learners, -1).mean(-1) for values in last)
    measure, values = ("success", success) if success.any() else ("returns", returns)
    parts = (tasks, values.mean(1).tolist()), (env.all_tasks()[held_out], []), (tasks[:0], [])
    title = f"{LABELS[measure].capitalize()} of the trained agents on each task"
    figure = success_figure(env, *parts, title=title, label=LABELS[measure])
    folder = config.folder("logs") / "source"
    pixels = style.figure_to_array(figure)
    style.save_picture(folder / "goals.png", pixels)
    with MetricLogger(folder, options=config.summaries) as logger:
        logger.image("goals", pixels, env_steps(source))
    for films in filming():
        films.film_agents(config, env, tasks, played)
    failed = [task for task in range(num_tasks) if success[task].min() < SOLVED]
    unsolved = [{"task": env.label(tasks[task]), "success": success[task].round(3).tolist()} for task in failed]
    results: dict[str, Any] = {"num_tasks": num_tasks, "success": success.tolist(), "unsolved": unsolved}
    if not success.any():
        results["return"] = float(returns.mean())
    return results
