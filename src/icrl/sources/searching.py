"""Policies with a memory that forgets nothing, as sources: their lives show how one learns in context.

In rooms that is the searcher, in bandits Thompson sampling. With probability noise(t) an action is uniformly random
instead: a student meets its own mistakes in these lives, and sees what to do after them.

L learners, N environments per learner, B = L * N streams (learner by learner), A actions.
"""

from typing import Any, Protocol

import torch
from torch import Tensor

from icrl.config.env_schema import BanditConfig, EnvConfig
from icrl.config.schedules import Clock, make_schedule
from icrl.config.training_schema import SearcherConfig
from icrl.contracts import EnvSpec, Learned, Policy, Sample, Step
from icrl.envs.core import TensorEnv
from icrl.envs.dark_key_to_door import DarkKeyToDoor
from icrl.envs.dark_room import DarkRoom
from icrl.sources.bandit_policies import ThompsonSampling
from icrl.sources.learners import Learners
from icrl.sources.searchers import PermutedSearcher, Searcher

_TINY = 2.0**-24  # the smallest difference of two numbers of noise


class InContextLearner(Policy[Any], Protocol):
    """A policy that learns from what its streams show, also where another action was done than it chose."""

    def did(self, carry: Any, action: Tensor) -> Any:
        """The carry that `act` gave, of streams in which `action` `[B]` is done instead of what it chose."""
        ...


def in_context_learner(env: TensorEnv, config: EnvConfig) -> InContextLearner | None:
    """The policy that learns in its context in the world `env` of these options; None where there is none."""
    if isinstance(env, DarkRoom):
        return PermutedSearcher(env) if env.permute_actions else Searcher(env)
    if isinstance(env, DarkKeyToDoor):
        return Searcher(env)
    if isinstance(config, BanditConfig):
        return ThompsonSampling(env.spec, config.deviation if config.distribution == "gaussian" else None)
    return None


class Searching(Learners):
    """L learners that have nothing to learn but in the context of each of their B streams, which is in the carry."""

    policy: InContextLearner  # who is distilled; to be set before anything is played

    def __init__(self, config: SearcherConfig, spec: EnvSpec, seeds: Tensor, device: torch.device) -> None:
        """`seeds` `[L]`: one for each learner; its luck is in the noise alone."""
        super().__init__(len(seeds))
        self._num_actions = spec.num_actions
        self._noise = make_schedule(config.noise)

    def initial_carry(self, num_streams: int) -> Any:
        """What the policy knows of fresh streams."""
        super().initial_carry(num_streams)
        return self.policy.initial_carry(num_streams)

    def act(self, carry: Any, step: Step, noise: Tensor) -> tuple[Tensor, Any]:
        """The policy's action; where `noise` falls below the probability of a random one, that. What remains of the
        one random number is uniform again, for either."""
        share = self._noise(self.clock)
        action, carry = self.policy.act(carry, step, ((noise - share) / max(1 - share, _TINY)).clamp(0, 1 - _TINY))
        at_random = (noise / max(share, _TINY) * self._num_actions).long().clamp(max=self._num_actions - 1)
        action = torch.where(noise < share, at_random, action)
        return action, self.policy.did(carry, action)

    def update(self, sample: Sample) -> Learned:
        """Nothing is learned; the metric is the noise, `[L]`."""
        return Learned({"noise": torch.full((self.num_learners,), self._noise(self.clock))})

    def state_dict(self) -> dict[str, Any]:
        """The clock, so that restored learners act as the saved ones."""
        return {"clock": list(self.clock)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.clock = Clock(*state["clock"])
