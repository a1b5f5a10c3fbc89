"""Small critics, their windows and their checkpoints for tests."""

from pathlib import Path
from typing import Any

import small_models
import torch
from models import outspoken
from small_models import LENGTH, OPTIONS, SPEC, batch_of, same_weights, shown
from torch import Tensor

from icrl.app.compose import compose_config
from icrl.contracts import Batch, Json
from icrl.extensions.offline_rl.critic import Critic, ValueNetwork
from icrl.extensions.offline_rl.critics import PROGRAM, make_critic
from icrl.extensions.offline_rl.options import OfflineConfig
from icrl.nn.gpt import Window, context_of
from icrl.runs import checkpoint
from icrl.spaces import EnvSpec

__all__ = ["LENGTH", "SPEC", "batch_of", "same_weights", "shown"]

CONFIG = compose_config(OfflineConfig, [*OPTIONS, "critic=ilql", "critic.return_lambda=0"])


def config_of(base: OfflineConfig = CONFIG, **changes: dict[str, Any]) -> OfflineConfig:
    """`base` with some options of a group changed: `critic={"backup": "max"}`."""
    return small_models.config_of(base, **changes)


def fresh_critic(config: OfflineConfig = CONFIG, spec: EnvSpec = SPEC) -> Critic:
    return make_critic(config, spec)


def critic_of(**changes: dict[str, Any]) -> Critic:
    """A critic in training mode whose large parameters make every input show; its target network has others."""
    critic = outspoken(fresh_critic(config_of(**changes)))
    critic.updates.zero_()
    return critic.train()


@torch.no_grad()
def value_at_the_end(network: ValueNetwork, batch: Batch, row: int, step: int) -> float:
    """V of the observation after `step` of a window, by one forward over the window up to there."""
    late = min(int(batch.timestep[row, step]) + 1, SPEC.max_episode_steps - 1)
    last = (int(batch.next_obs[row, step]), 0, 0, late)
    columns = zip((batch.obs, batch.action, batch.reward, batch.timestep), last, strict=True)
    cut = [torch.cat([column[row, : step + 1], torch.tensor([end])])[None] for column, end in columns]
    return float(network(context_of(Window(*cut))).value[0, -1])


def described(config: OfflineConfig = CONFIG) -> Json:
    """Description of a critic in its checkpoint's sidecar."""
    return small_models.described(config, PROGRAM)


def save_finished(folder: Path, weights: dict[str, Tensor], update: int = 1, about: Json | None = None) -> None:
    """Last checkpoint of a finished critic; `about` is its description, if not that of `CONFIG`."""
    checkpoint.save(folder, "last", update, {"step": update, "model": weights}, about or described(), 1)
    small_models.finish(folder, update, PROGRAM)
