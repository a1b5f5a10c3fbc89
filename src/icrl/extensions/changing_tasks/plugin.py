"""World in which a stream changes its task between episodes, and its registration."""

import torch
from torch import Tensor

from icrl.app.root import Config
from icrl.contracts import ConfigError, Env, Step
from icrl.envs.core import State, TensorEnv
from icrl.envs.tasks import CHANGES, development_of
from icrl.randomness import integers, mix, uniform

_CHANGES = 1 << 41  # mixed into a stream's seed, so that changes of the task use random numbers of their own


class ChangingTasks:
    """World `env` in which the task of a stream's next episode is drawn anew from `tasks` `[N, task_dim]`, which may
    give the same again, with `probability`, by the stream's seed and the number of the episode. No observation tells
    it."""

    def __init__(self, env: Env[State], tasks: Tensor, probability: float) -> None:
        self._env, self._tasks, self._probability = env, tasks, probability
        self.spec, self.all_tasks = env.spec, env.all_tasks
        self.reset, self.optimal_action = env.reset, env.optimal_action

    def step(self, state: State, action: Tensor) -> tuple[State, Step]:
        state, step = self._env.step(state, action)
        seed = mix(state.seed, _CHANGES)
        changes = (step.terminated | step.truncated) & (uniform(seed, state.episode) < self._probability)
        other = self._tasks[integers(mix(seed, 1), state.episode, len(self._tasks))]
        state = state._replace(task=torch.where(changes[:, None], other, state.task))
        return state, step._replace(optimal_action=self.optimal_action(state))


def changing_tasks(env: Env[State], config: Config, all_tasks: Tensor, train: list[int]) -> Env[State]:
    """The world of `tasks.changing`."""
    probability = config.source.task_change
    if not isinstance(env, TensorEnv) or type(env).step is not TensorEnv.step:
        named = f"source.task_change={probability}: a stream of env.name={config.env.name}"
        raise ConfigError(f"{named} is made for one task")
    set_aside = development_of(env, config, train)
    return ChangingTasks(env, all_tasks[[task for task in train if task not in set_aside]], probability)


CHANGES.append(changing_tasks)
