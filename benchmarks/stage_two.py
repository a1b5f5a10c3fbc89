"""A training update of our model on random windows, which several benchmarks measure."""

from collections.abc import Callable
from functools import partial

import torch

from icrl.config.root import Config
from icrl.config.schedules import Clock
from icrl.contracts import Batch, EnvSpec
from icrl.envs import make_env
from icrl.nn.gpt import GPT
from icrl.programs.train_gpt import OBJECTIVES
from icrl.runs.distributed import Ranks
from icrl.training.updates import Updater

HALFWAY = Clock(0.5, 1000, 0, 1000)


def random_batch(config: Config, spec: EnvSpec) -> Batch:
    """Windows of random transitions, as many as in an update."""
    shape = (config.trainer.mini_batch_size, config.trainer.mini_batch_length or config.model.context_len)
    bounds = {"obs": spec.num_obs, "action": spec.num_actions, "reward": spec.num_rewards, "next_obs": spec.num_obs}
    bounds |= {"timestep": spec.max_episode_steps, "terminated": 2, "truncated": 2, "optimal_action": spec.num_actions}
    columns = {name: torch.randint(bound, shape) for name, bound in bounds.items()}
    return Batch(**columns, weight=torch.ones(shape), training_reward=torch.zeros(shape))


def our_update(config: Config, spec: EnvSpec, batch: Batch) -> Callable[[], object]:
    """Update of our model on one batch."""
    objective = OBJECTIVES[config.objective.name](config.objective, spec)
    updater = Updater(GPT(config.model, spec).train(), objective, config, torch.device("cpu"), Ranks())
    return lambda: updater.update(batch, HALFWAY)


def repeated(update: Callable[[], object], times: int) -> int:
    """`times` updates; returns their number."""
    for _ in range(times):
        update()
    return times


def updates(config: Config, times: int) -> Callable[[], int]:
    """`times` updates of our model in the world of `config`, on one batch; a call returns their number."""
    spec = make_env(config.env).spec
    return partial(repeated, our_update(config, spec, random_batch(config, spec)), times)
