"""Filtering of learning histories (LHF; Chen et al., 2025, arXiv 2505.15143), before algorithm distillation.

The life of a learner is cut into K = 10 stretches of equal length. With c_k its mean reward in stretch k, over all its
environments, d_k = c_{k+1} - c_k, and range the largest minus the least c of all learners on its task:

    improvement = (c_K - c_1) / range
    stability   = sum of max(d_k, 0) / sum of |d_k|    (1: it never got worse; 0 if no reward ever changed)
    U           = improvement + stability
    p           = (U - min U) / (max U - min U),       min and max over the learners on its task (all alike: p = 1)

Each task keeps its number of learners, and learner l is there n_l times, where n_l is the number of learners on its
task times p_l / sum of p, rounded so that the sums of the first learners are rounded alone.

L learners, K stretches.
"""

from typing import Literal

import numpy as np

from icrl.config.options import option, refuse
from icrl.data.columns import Floats, row_chunks
from icrl.data.history_store import Histories
from icrl.objectives import objective
from icrl.objectives.imitation import AlgorithmDistillation, ObjectiveConfig

NUM_STRETCHES = 10


class FilteredConfig(ObjectiveConfig):
    name: Literal["filtered"] = option("filtered", "algorithm distillation of the learners that improved most")

    former = {"stability_weight": 1.0}

    def rows(self, histories: Histories, rows: np.ndarray, num_steps: int) -> np.ndarray:
        """Rows of the learners, each learner as often as the equations say."""
        num_envs = histories.manifest["rows"]["num_envs"]
        by_learner = rows.reshape(-1, num_envs)
        tasks, curves = histories.row_tasks[by_learner[:, 0]], reward_curves(histories, by_learner, num_steps)
        copies, (numbers, counts) = np.zeros(len(by_learner), np.int64), np.unique(tasks, return_counts=True)
        refuse(counts.max() < 2, "objective.name=filtered: the histories have one learner on each task; give 2 or more")
        for task in numbers:
            copies[tasks == task] = copies_of(curves[tasks == task])
        return by_learner.repeat(copies, 0).flatten()


@objective("filtered", FilteredConfig)
class FilteredDistillation(AlgorithmDistillation):
    """Algorithm distillation; the rows differ by its options."""


def reward_curves(histories: Histories, rows: np.ndarray, num_steps: int) -> Floats:
    """Mean reward of learners in each stretch of their first `num_steps` steps, `[L, K]`, given the rows of each."""
    chunks = row_chunks(len(rows), 8 * num_steps * rows.shape[1])
    rewards = (histories.rewards(rows[chunk].flatten(), slice(num_steps)) for chunk in chunks)
    stretches = (np.array_split(reward, min(NUM_STRETCHES, num_steps), axis=1) for reward in rewards)
    means = [np.stack([part.mean(1) for part in parts], axis=1) for parts in stretches]
    return np.concatenate(means).reshape(*rows.shape, -1).mean(1)


def utilities(curves: Floats) -> Floats:
    """U `[L]` of all learners on a task, given their mean rewards `[L, K]`."""
    change, spread = np.diff(curves, axis=1), np.ptp(curves)
    moved = np.abs(change).sum(1)
    rise = np.maximum(change, 0).sum(1)
    improvement = (curves[:, -1] - curves[:, 0]) / (spread or 1)
    return improvement + rise / np.where(moved, moved, 1)


def copies_of(curves: Floats) -> np.ndarray:
    """How often each learner on a task is there, `[L]` integers with the sum L."""
    utility = utilities(curves)
    above = utility - utility.min()
    shares = above / above.sum() if above.any() else np.full(len(above), 1 / len(above))
    return np.diff(np.round(shares.cumsum() * len(shares)), prepend=0).astype(np.int64)
