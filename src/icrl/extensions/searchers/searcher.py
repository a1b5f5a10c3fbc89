"""Searchers as a source: policies that learn in context with a perfect memory, whose histories show this.

In rooms a searcher goes to the nearest cell where the goal may be, by all that its stream has shown, or looks for it in
another way (`explorers`). Other worlds have theirs in `evaluation.references.searchers_in`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from icrl.app.root import Config
from icrl.config.options import OneOrMore, option, refuse
from icrl.config.schedules import Schedule, make_schedule
from icrl.contracts import Env, Sample, Step, UpdateResult
from icrl.data.lives import Labels
from icrl.envs import make_env
from icrl.envs.rooms import DarkRoom
from icrl.evaluation.references import searchers_in
from icrl.extensions.searchers.explorers import CoveringPlan, PersistentWalk, TurningWalk, UniformWalk, has_explorers
from icrl.extensions.searchers.rooms import PosteriorSampler
from icrl.objectives import labels
from icrl.randomness import Noise, stream_seeds
from icrl.sources import source
from icrl.sources.learners import Learner
from icrl.sources.options import Share, SourceConfig, named
from icrl.spaces import EnvSpec

_TINY = 2.0**-24  # the smallest difference of two numbers of noise


Strategy = Literal["nearest", "covering_plan", "posterior_sampling", "persistent_walk", "turning_walk", "uniform_walk"]


class SearcherConfig(SourceConfig):
    learns: ClassVar[bool] = False
    in_context: ClassVar[bool] = True

    name: Literal["searcher"] = named("searcher")
    strategy: Strategy = option(
        "nearest",
        "how the searcher looks for the goal. nearest: the nearest cell where it may be (in bandits and random MDPs "
        "Thompson "
        "sampling); in DarkRoom with one start also covering_plan: paths that visit all cells with few "
        "wasted steps, posterior_sampling: to a cell drawn from all where it may be, and three random walks",
    )
    noise: Annotated[list[Share], OneOrMore] = option(
        [0.03],
        "probability of a uniformly random action instead of the searcher's; of a list, the k-th for learner k of a "
        "task (after the last, the first again)",
    )


_STRATEGIES = {
    "covering_plan": CoveringPlan,
    "persistent_walk": PersistentWalk,
    "posterior_sampling": PosteriorSampler,
    "turning_walk": TurningWalk,
    "uniform_walk": UniformWalk,
}
_READ = ("reward", "terminated", "truncated", "next_obs", "obs", "timestep", "action")  # columns, by `relabelled`


def searcher_of(strategy: str, config: Config) -> Any:
    """Searcher of this `source.strategy` for the world of `config`. Raises `ConfigError` if there is none."""
    with closing(make_env(config.env)) as env:
        policy = next(iter(searchers_in(env).values()), None) if strategy == "nearest" else None
        if strategy != "nearest" and isinstance(env, DarkRoom) and has_explorers(env):
            policy = _STRATEGIES[strategy](env)
    where = f"env.name={config.env.name} and its options"
    refuse(policy is None, f"strategy={strategy}: there is no such searcher with {where}")
    return policy


@source("searcher", SearcherConfig)
class Searcher(Learner):
    """L learners that act by `policy`; they learn only in the contexts of their streams, in the carry. With probability
    noise(t) an action is uniformly random instead, so that histories also show what to do after a mistake."""

    policy: Any = None  # by `searcher_of`; to be set before the first use

    @classmethod
    def create(cls, config: Config, env: Env[Any], tasks: Tensor, seeds: Tensor, device: torch.device) -> Self:
        """Learners with the policy for this world. Raises `ConfigError` if there is none."""
        learners = super().create(config, env, tasks, seeds, device)
        learners.policy = searcher_of(learners.config.strategy, config)
        return learners

    def initial_carry(self, num_streams: int) -> Any:
        super().initial_carry(num_streams)
        return self.policy.initial_carry(num_streams)

    @cached_property
    def _levels(self) -> list[Schedule]:
        return [make_schedule(level) for level in self.config.noise]

    @property
    def noise(self) -> Tensor:
        """Probability of a uniformly random action now, `[L]`."""
        levels = torch.tensor([level(self.clock) for level in self._levels], device=self.device)
        number = torch.arange(self.num_learners, device=self.device) % self.config.num_learners
        return levels[number % len(levels)]

    def act(self, carry: Any, step: Step, noise: Tensor) -> tuple[Tensor, Any]:
        """The policy's action, or a random one if `noise` is below its probability. Its rest is uniform for either."""
        num_actions, share = self._spec.num_actions, self.noise.repeat_interleave(len(noise) // self.num_learners)
        rest = (noise - share) / (1 - share).clamp(min=_TINY)
        action, carry = self.policy.act(carry, step, rest.clamp(0, 1 - _TINY))
        at_random = (noise / share.clamp(min=_TINY) * num_actions).long().clamp(max=num_actions - 1)
        action = torch.where(noise < share, at_random, action)
        return action, self.policy.replace_action(carry, action)

    def update(self, sample: Sample) -> UpdateResult:
        """Report the noise; nothing is learned."""
        return UpdateResult({"noise": self.noise})


@labels(*get_args(Strategy))
def labels_of(strategy: str, config: Config, spec: EnvSpec) -> Labels:
    """Labels by the searcher of this `source.strategy`."""
    return partial(relabelled, searcher_of(strategy, config), num_actions=spec.num_actions)


def relabelled(
    policy: Any, columns: Mapping[str, NDArray[Any]], num_actions: int, first_row: int = 0
) -> NDArray[np.uint8]:
    """Actions `[N, T]` that the searcher `policy` would take at every step of rows `[N, T]` of histories, given what
    the row has shown before: labels of an expert for what others played (Ross et al., 2011, arXiv 1011.0686). Ties are
    broken by random numbers of row, counted from `first_row` on, and step."""
    time = {name: torch.from_numpy(columns[name].T.copy()) for name in _READ}  # [T, N]
    time |= {name: column.long() for name, column in time.items() if name != "reward"}
    num_steps, num_rows = time["obs"].shape
    noise, carry = Noise(stream_seeds(0, first_row + num_rows)[first_row:]), policy.initial_carry(num_rows)
    zero = torch.zeros(num_rows, dtype=torch.long)
    none, unknown = zero.bool(), zero + num_actions
    labels = torch.empty(num_steps, num_rows, dtype=torch.uint8)
    for t in range(num_steps):
        last = [time[name][t - 1] for name in _READ[:4]] if t else [zero.float(), none, none, time["obs"][0]]
        reward, terminated, truncated, landed = last
        step = Step(time["obs"][t], reward, terminated > 0, truncated > 0, landed, time["timestep"][t], unknown)
        labels[t], carry = policy.act(carry, step, noise.draw(1)[0])
        carry = policy.replace_action(carry, time["action"][t])
    return labels.T.contiguous().numpy()
