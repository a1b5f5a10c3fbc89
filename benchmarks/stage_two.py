"""A training update of our models on random windows, which several benchmarks measure."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from icrl.app.root import Config
from icrl.config.schedules import Clock
from icrl.contracts import Batch, Objective
from icrl.envs import make_env
from icrl.nn.gpt import GPT
from icrl.objectives import objective_class
from icrl.runs.distributed import Ranks
from icrl.spaces import EnvSpec
from icrl.training.updates import Updater

HALFWAY = Clock(0.5, 1000, 0, 1000)


CPU = torch.device("cpu")


def random_batch(config: Config, spec: EnvSpec, device: torch.device = CPU) -> Batch:
    """Windows of random transitions on `device`, as many as in an update."""
    shape = (config.trainer.mini_batch_size, config.trainer.mini_batch_length or config.model.context_len)
    bounds = {"obs": spec.num_obs, "action": spec.num_actions, "reward": spec.num_rewards, "next_obs": spec.num_obs}
    bounds |= {"timestep": spec.max_episode_steps, "terminated": 2, "truncated": 2, "optimal_action": spec.num_actions}
    columns = {name: torch.randint(bound, shape, device=device) for name, bound in bounds.items()}
    ones = torch.ones(shape, device=device)
    return Batch(**columns, weight=ones, training_reward=torch.zeros_like(ones))


def update_of(
    model: nn.Module, objective: Objective, config: Config, batch: Batch, after_step: Callable[[], None] | None = None
) -> Callable[[], object]:
    """Update of `model` on one batch on the model's device, with `after_step` (see `Updater`)."""
    updater = Updater(model.train(), objective, config, batch.obs.device, Ranks(), after_step)
    return lambda: updater.update(batch, HALFWAY)


def our_update(config: Config, spec: EnvSpec, batch: Batch) -> Callable[[], object]:
    """Update of the model of stage two on one batch, on the device of this."""
    objective = objective_class(config.objective.name)(config.objective, spec)
    return update_of(GPT(config.model, spec).to(batch.obs.device), objective, config, batch)


def repeated(update: Callable[[], object], times: int) -> int:
    """`times` updates; returns their number."""
    for _ in range(times):
        update()
    return times


def updates(config: Config, times: int, device: torch.device = CPU) -> Callable[[], int]:
    """`times` updates of the model of stage two in the world of `config`, on one batch; a call returns their number."""
    spec = make_env(config.env).spec
    return partial(repeated, our_update(config, spec, random_batch(config, spec, device)), times)
