"""A world of one's own as a tensor rule: the street of my_world.py, for all streams at once and with a planner.

python -m src.pipeline module=examples/my_rule.py env=street env.max_episode_steps=12 tasks.num_train=5 \
  source=noise_distillation
"""

from typing import Literal

import torch
from torch import Tensor

from icrl.config.options import option
from icrl.envs.core import NAME, EnvConfig, MapView, Outcomes, State, TensorEnv, certain, world
from icrl.spaces import discrete_spec


class StreetConfig(EnvConfig):
    name: Literal["street"] = option("street", NAME)
    length: int = option(9, "number of houses", ge=3, le=1000)


@world("street", StreetConfig)
class Street(TensorEnv):
    """Walk left (0) or right (1) from the middle; reward 1 and the end of the episode at a house, which is the task
    `[B, 1]`."""

    task_columns = ("house",)

    def __init__(self, config: StreetConfig) -> None:
        self.spec = discrete_spec(config.length, 2, (0.0, 1.0), 0, config.max_episode_steps, success="goal")
        self.starts = torch.tensor([config.length // 2])

    def all_tasks(self) -> Tensor:
        houses = torch.arange(self.spec.num_obs)
        return houses[houses != self.starts.cpu()][:, None]

    def outcomes(self, task: Tensor, state_index: Tensor, action: Tensor) -> Outcomes:
        place = (state_index + 2 * action - 1).clamp(0, self.spec.num_obs - 1)
        found = place == task[..., 0]
        return certain(place, found.long(), found)  # found is also the index of the reward

    def optimal_action(self, state: State) -> Tensor:
        return (state.task[..., 0] > state.inner).long()

    def label(self, task: Tensor) -> str:
        return f"house_{int(task[0])}"

    def map_view(self, task: Tensor) -> MapView:
        return MapView(1, self.spec.num_obs, (int(task[0]),))
