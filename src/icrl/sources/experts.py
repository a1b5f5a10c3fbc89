"""Sources that learn nothing: the planner, chance, and a mixture of them that changes over a life.

Noise distillation (Zisman et al., 2023, "Emergence of in-context reinforcement learning from noise distillation",
arXiv 2312.12275) needs no learning agents: with probability noise(t), annealed over the life, an action is uniformly
random, else the expert's,

    pi_t(a | s) = noise(t) / A + (1 - noise(t)) * pi_expert(a | s)

The expert is the planner, whose action comes with what a stream shows (`Step.optimal_action`), or a policy that was
learned.

L learners, N environments per learner, B = L * N streams (learner by learner), A actions.
"""

from typing import Any, Protocol

import torch
from torch import Tensor

from icrl.config.schedules import Clock, make_schedule
from icrl.config.training_schema import NoiseDistillationConfig, SourceConfig
from icrl.contracts import EnvSpec, Learned, Sample, Step
from icrl.sources.learners import Learners


class Expert(Protocol):
    """Whoever is to be imitated."""

    def action_probabilities(self, step: Step) -> Tensor: ...


class Planner:
    """The optimal action, always."""

    def __init__(self, num_actions: int) -> None:
        self._num_actions = num_actions

    def action_probabilities(self, step: Step) -> Tensor:
        """`[B, A]`; there must be a planner for the world."""
        return torch.nn.functional.one_hot(step.optimal_action, self._num_actions).float()


class NoiseDistillation(Learners):
    """L learners that do not learn and, as a `Policy`, what they do in their B streams; the carry is empty."""

    def __init__(self, config: SourceConfig, spec: EnvSpec, seeds: Tensor, device: torch.device) -> None:
        """`seeds` `[L]`: one for each learner; its luck is in the noise alone."""
        super().__init__(len(seeds))
        self.expert: Expert = Planner(spec.num_actions)
        self.find_least_noise = lambda: torch.zeros(self.num_learners, device=device)
        self._least_noise: Tensor | None = None  # [L], found when it is first needed, unless it is restored
        self._spec, self._num_actions = spec, spec.num_actions
        self._device = device
        self._noise = make_schedule(self._rate(config))

    @staticmethod
    def _rate(config: SourceConfig) -> Any:
        assert isinstance(config, NoiseDistillationConfig)
        return config.noise

    @property
    def least_noise(self) -> Tensor:
        """Below which the noise of each learner never falls, `[L]`."""
        if self._least_noise is None:
            self._least_noise = self.find_least_noise().float().to(self._device)
        return self._least_noise

    @property
    def noise(self) -> Tensor:
        """Probability of a uniformly random action now, `[L]`."""
        return self.least_noise.clamp(min=self._noise(self.clock))

    def action_probabilities(self, step: Step) -> Tensor:
        """The mixture, `[B, A]`."""
        share = self.noise.repeat_interleave(len(step.obs) // self.num_learners)[:, None]
        if (share == 1.0).all():  # where nobody knows what is optimal, chance needs no expert
            legal = self._spec.legal(step.obs)
            if legal is not None:
                return legal / legal.sum(1, keepdim=True)
            return (share / self._num_actions).expand(-1, self._num_actions)
        return share / self._num_actions + (1 - share) * self.expert.action_probabilities(step)

    def update(self, sample: Sample) -> Learned:
        """Nothing is learned; the metric is the noise, `[L]`."""
        return Learned({"noise": self.noise})

    def state_dict(self) -> dict[str, Any]:
        """The clock too, so that restored learners act as the saved ones."""
        return {"clock": list(self.clock), "least_noise": self.least_noise}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.clock, self._least_noise = Clock(*state["clock"]), state["least_noise"]


class Optimal(NoiseDistillation):
    """The planner, from the first step to the last."""

    @staticmethod
    def _rate(config: SourceConfig) -> float:
        return 0.0


class Random(NoiseDistillation):
    """Chance alone."""

    @staticmethod
    def _rate(config: SourceConfig) -> float:
        return 1.0
