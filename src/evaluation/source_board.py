"""What stage one shows: one readable board for all agents, a progress bar, and who did not solve its task."""

import numpy as np
import torch
from torch import Tensor

from src.config import Config
from src.contracts import Rollout
from src.training.collect import EpisodeStatistics
from src.training.summaries import Progress, Summaries, spread

SOLVED = 0.9  # success over its last episodes from which on an agent counts as having solved its task


class SourceBoard:
    """TensorBoard curves over env steps per learner: mean and band over agents, fraction solved; per agent on request."""

    def __init__(self, config: Config, num_tasks: int, first_update: int) -> None:
        source, self._folder = config.source, config.folder("logs") / "source"
        self._source = source
        self._per_update = source.rollout_len * source.num_envs  # env steps of one learner
        self._num_learners = num_tasks * source.num_learners
        self._summaries = Summaries(self._folder, first_update * self._per_update)
        self._summaries.configuration(config)
        self._summaries.bands("source agents", ["source/return", "source/success", "source/episode_length"])
        self._agents = [
            Summaries(self._folder / "agents" / f"{k:04d}", first_update * self._per_update)
            for k in range(self._num_learners * source.per_agent_curves)
        ]
        self._statistics = EpisodeStatistics(self._num_learners, source.num_envs)
        total, done = source.num_env_steps * self._num_learners, first_update * self._per_update * self._num_learners
        self._progress = Progress("train_agents", total, done, "step")
        self._pending: list[Rollout] = []

    def add(self, update: int, transitions: Rollout, metrics: dict[str, Tensor]) -> None:
        """Take in one update: its transitions `[T, B]` and metrics `[L]`."""
        self._pending.append(transitions)
        self._progress.advance(self._per_update * self._num_learners)
        if update % self._source.log_interval:
            return
        summary = self.summary()
        steps = update * self._per_update
        for name, values in summary.items():
            self._summaries.scalars(f"source/{name}", spread(values), steps)
            for agent, value in zip(self._agents, values, strict=False):
                if not np.isnan(value):
                    agent.scalars("source", {name: float(value)}, steps)
        solved = {"fraction_solved": float((summary["success"] >= SOLVED).mean())}
        self._summaries.scalars("source", solved, steps)
        self._summaries.scalars("update", {name: value.mean().item() for name, value in metrics.items()}, steps)
        if update % (10 * self._source.log_interval) == 0:
            self._progress.log({"return": float(np.nanmean(summary["return"])), **solved})

    def summary(self) -> dict[str, np.ndarray]:
        """Return, success and episode length of each learner's last episodes, `[L]`."""
        if self._pending:
            self._statistics.add(Rollout(*(torch.cat(column) for column in zip(*self._pending, strict=True))))
            self._pending = []
        return self._statistics.summary()

    def close(self) -> None:
        self._progress.close()
        for summaries in (self._summaries, *self._agents):
            summaries.close()
