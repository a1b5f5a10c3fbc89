"""World model of a sequence model: the reward and the next observation of each action, and the loss of both.

B windows, T steps, A actions, R rewards, O observations; h_t is the output of the trunk at step t of a window b, with
one linear layer for each action a:

    pi(. | h_t) = softmax(W h_t),  p(r | h_t, a) = softmax(U_a h_t),  p(o' | h_t, a) = softmax(V_a h_t)
    loss = loss of algorithm distillation
           - mean over b, t of  (log p(r_t | h_t, a_t) + log p(o_{t+1} | h_t, a_t))

o' is an observation, or the end of the task (index O).
"""

from typing import Literal, NamedTuple

import torch.nn.functional as F
from gymnasium.spaces import Discrete
from torch import Tensor, nn

from icrl.config.options import option, refuse
from icrl.contracts import Batch
from icrl.nn.encoders import Table
from icrl.nn.gpt import GPTConfig, check_discrete
from icrl.nn.heads import Categorical, Head
from icrl.objectives import objective
from icrl.objectives.imitation import Imitation, ObjectiveConfig
from icrl.spaces import EnvSpec


class PlanningConfig(ObjectiveConfig):
    name: Literal["planning"] = option(
        "planning", "algorithm distillation, and prediction of the reward and the next observation"
    )
    horizon: int = option(
        6,
        "steps that policy.model=planned imagines, discounted by objective.discount",
        ge=1,
        may_change=True,
        stages="4",
    )
    beams: int = option(
        1, "imagined continuations that are kept for each first action", ge=1, le=1000, may_change=True, stages="4"
    )

    former = {"model_weight": 1.0}


class Predictions(NamedTuple):
    """Logits of the head, of any leading axes."""

    action: Tensor  # [..., A]
    reward: Tensor  # [..., A, R]
    next_obs: Tensor  # [..., A, O + 1]


class PlanningHead(Categorical):
    """Categorical of Discrete actions; behind its logits are those of the reward and the next observation of each."""

    def __init__(self, config: GPTConfig, spec: EnvSpec) -> None:
        """Raises `ConfigError` for worlds whose spaces or rewards cannot be listed."""
        check_discrete("model.head=planning", spec)
        one = isinstance(spec.observation_space, Discrete)
        refuse(not one, f"model.head=planning needs Discrete observations, and these are in {spec.observation_space}")
        super().__init__(spec.num_actions)
        self.sizes = spec.num_actions, spec.num_actions * spec.num_rewards, spec.num_actions * (spec.num_obs + 1)
        self.num_parameters = sum(self.sizes)

    def split(self, parameters: Tensor) -> Predictions:
        """Predictions by `parameters` `[..., P]`."""
        action, *others = parameters.split(self.sizes, dim=-1)
        return Predictions(action, *(part.unflatten(-1, (self.sizes[0], -1)) for part in others))

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        return super().log_prob(self.split(parameters).action, action)

    def entropy(self, parameters: Tensor) -> Tensor:
        return super().entropy(self.split(parameters).action)

    def encoder(self, width: int) -> nn.Module:
        return Table(self.sizes[0], width)


@objective("planning", PlanningConfig)
class PlanningObjective(Imitation):
    """Objective with the loss above, of a model with a `PlanningHead`."""

    low_precision = True

    def __init__(self, config: PlanningConfig, spec: EnvSpec, head: Head | None = None) -> None:
        """`head` is that of the model. Raises `ConfigError` for worlds that it cannot predict."""
        self.spec = spec
        self.split = (head if isinstance(head, PlanningHead) else PlanningHead(GPTConfig(), spec)).split
        self.weights = dict.fromkeys(("imitation", "reward_nll", "next_obs_nll"), 1.0)

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Action logits `[B, T, A]`."""
        return self.split(super().logits(model, batch)).action

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Terms of the loss. Metrics: those of algorithm distillation, and the shares of steps whose reward and next
        observation were the most probable ones (`reward_accuracy`, `next_obs_accuracy`)."""
        action, reward, next_obs = self.split(super().logits(model, batch))
        losses = F.cross_entropy(action.flatten(0, 1), batch.action.flatten(), reduction="none")
        terms = {"imitation": (losses * batch.weight.flatten()).mean()}
        metrics = {"nll": losses.detach().mean(), "accuracy": (action.argmax(-1) == batch.action).float().mean()}
        after = batch.next_obs.masked_fill(batch.terminated.bool(), self.spec.num_obs)
        happened = {"reward": (reward, self.spec.reward_index(batch.reward)), "next_obs": (next_obs, after)}
        for name, (logits, target) in happened.items():
            done = logits.take_along_dim(batch.action[..., None, None], 2)[:, :, 0]  # of the actions taken
            terms[f"{name}_nll"] = F.cross_entropy(done.flatten(0, 1), target.flatten())
            metrics[f"{name}_accuracy"] = (done.argmax(-1) == target).float().mean()
        return terms, metrics
