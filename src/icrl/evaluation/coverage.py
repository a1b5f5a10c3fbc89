"""Coverage: how much of a room policies have seen by the end of each episode, where there is nothing to find.

S streams, E episodes.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from icrl.contracts import Policy
from icrl.envs.dark_room import DarkRoom
from icrl.evaluation.in_context import play_steps

NUM_EPISODES = 6


def coverage_of(
    policies: Mapping[str, Policy[Any]], env: DarkRoom, num_streams: int, seed: int
) -> dict[str, NDArray[np.float64]]:
    """Of the cells that may be goals the share that each of `num_streams` = S streams of each policy has visited by the
    end of each of its first `NUM_EPISODES` = E episodes, `[1, S, E]`, in a room whose goal is on no cell of it. A visit
    is a move that ends on the cell, which is what shows a goal."""
    cells = env.all_tasks().unique()
    nowhere = torch.full((1, 1), env.size**2, device=cells.device)
    found: dict[str, NDArray[np.float64]] = {}
    for name, policy in policies.items():
        steps = play_steps(policy, env, nowhere, num_streams, NUM_EPISODES * env.spec.max_episode_steps, seed)
        visited = torch.zeros(NUM_EPISODES, num_streams, env.size**2, dtype=torch.bool, device=cells.device)
        by_episode = steps.next_obs.view(NUM_EPISODES, -1, num_streams).transpose(1, 2)  # the clock alone ends them
        seen = visited.scatter_(2, by_episode, True).cumsum(0)[..., cells] > 0
        found[name] = seen.double().mean(2).T.cpu().numpy()[None]
    return found
