"""Searcher: a source that learns in context with a perfect memory, so its histories show in-context learning.

In rooms it is the room searcher, in bandits Thompson sampling. With probability noise(t) an action is uniformly random
instead, so that the histories also show what to do after a mistake.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, Self

import torch
from torch import Tensor

from icrl.config.options import Rate, option
from icrl.contracts import ConfigError, Env, Learned, Policy, Sample, Step
from icrl.envs import make_env
from icrl.envs.bandit import BanditConfig
from icrl.envs.core import EnvConfig, TensorEnv
from icrl.envs.rooms import DarkKeyToDoor, DarkRoom
from icrl.sources import source
from icrl.sources.bandit_policies import ThompsonSampling
from icrl.sources.learners import Learner
from icrl.sources.options import SourceConfig
from icrl.sources.room_searchers import PermutedSearcher, RoomSearcher

if TYPE_CHECKING:
    from icrl.config.root import Config


_NAME = "source algorithm; the preset `source=` sets all of this group"


class SearcherConfig(SourceConfig):
    name: Literal["searcher"] = option("searcher", _NAME)
    noise: Annotated[Any, Rate(ge=0, le=1)] = option(
        0.03, "probability of a uniformly random action instead of the searcher's"
    )


_TINY = 2.0**-24  # the smallest difference of two numbers of noise


class InContextLearner(Policy[Any], Protocol):
    """Policy that learns from its streams, also where another action was done than it chose."""

    def replace_action(self, carry: Any, action: Tensor) -> Any:
        """`carry` as returned by `act`, if `action` `[B]` is done instead of the chosen one."""
        ...


def in_context_learner(env: TensorEnv, config: EnvConfig) -> InContextLearner | None:
    """Policy that learns in context in the world `env` with the options `config`; None if there is none."""
    if isinstance(env, DarkRoom):
        return PermutedSearcher(env) if env.permute_actions else RoomSearcher(env)
    if isinstance(env, DarkKeyToDoor):
        return RoomSearcher(env)
    if isinstance(config, BanditConfig):
        return ThompsonSampling(env.spec, config.deviation if config.distribution == "gaussian" else None)
    return None


@source("searcher", SearcherConfig)
class Searcher(Learner):
    """L learners that act by `policy` with noise; they learn only in the contexts of their streams, in the carry."""

    policy: InContextLearner  # to be set before the first use

    @classmethod
    def create(cls, config: Config, env: Env[Any], tasks: Tensor, seeds: Tensor, device: torch.device) -> Self:
        """Learners with the policy for this world. Raises `ConfigError` if there is none."""
        with closing(make_env(config.env)) as world:
            policy = in_context_learner(world, config.env)
        if policy is None:
            raise ConfigError(f"source.name=searcher: there is no searcher with env.name={config.env.name}")
        learners = cls(config.source, env.spec, seeds, device)
        learners.policy = policy
        return learners

    def initial_carry(self, num_streams: int) -> Any:
        super().initial_carry(num_streams)
        return self.policy.initial_carry(num_streams)

    def act(self, carry: Any, step: Step, noise: Tensor) -> tuple[Tensor, Any]:
        """The policy's action, or a random one if `noise` is below its probability. The rest of the one random number
        is uniform again, for either."""
        share, num_actions = self.rate("noise"), self._spec.num_actions
        action, carry = self.policy.act(carry, step, ((noise - share) / max(1 - share, _TINY)).clamp(0, 1 - _TINY))
        at_random = (noise / max(share, _TINY) * num_actions).long().clamp(max=num_actions - 1)
        action = torch.where(noise < share, at_random, action)
        return action, self.policy.replace_action(carry, action)

    def update(self, sample: Sample) -> Learned:
        """Report the noise; nothing is learned."""
        return Learned({"noise": torch.full((self.num_learners,), self.rate("noise"))})
