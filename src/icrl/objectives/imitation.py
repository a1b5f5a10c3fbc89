"""Imitation in context: algorithm distillation, decision pretraining and advantage-weighted regression.

All three predict an action at every step of a window b of a history:

    loss = - mean over b, t of w_bt log pi(a_t | everything before it in the window, o_t)

Algorithm distillation (Laskin et al., 2022) predicts the learning agent's next action a_t, with the weights w of the
batch (`data/windows.py`). Of Discrete actions, targets are smoothed to 1 - label_smoothing on a_t. The rest is spread
over all actions. If legal actions are known, both pi and the rest are over legal actions only. Of other actions, pi is
the probability or the density of the model's head (`nn/heads.py`).

Advantage-weighted regression (Peng et al., 2019) makes a policy from a frozen critic:

    log w = min(b A, log advantage_threshold),  A = min(Q1, Q2)(o_t, a_t) - V(o_t)

with the inverse temperature b (0: plain imitation). `normalize=mean` divides the weights by their mean over the batch;
`softmax` subtracts its logarithm from b A before the minimum is taken. Weights are computed in log space and float32 to
avoid overflow. No gradient reaches Q or V.
"""

import math
from typing import Literal, Self

import torch
import torch.nn.functional as F
from gymnasium.spaces import Discrete
from pydantic import model_validator
from torch import Tensor, nn

from icrl.config.options import Name, Options, PathName, option, refuse
from icrl.contracts import Batch
from icrl.nn.critic import ValueNetwork, in_full
from icrl.nn.gpt import Context, Window, context_of
from icrl.nn.heads import Head
from icrl.objectives import objective
from icrl.spaces import EnvSpec

RESERVED = ("gpt", "ilql", "critic", "source", "search", "evals", "in_context")  # folders of a run, names of policies


class ObjectiveConfig(Options):
    name: Literal["ad", "dpt"] = option(
        "ad", "ad: predict the source's next action at every step; dpt: the best action by objective.labels"
    )
    labels: Literal[
        "planner", "nearest", "covering_plan", "posterior_sampling", "persistent_walk", "turning_walk", "uniform_walk"
    ] = option(
        "planner",
        "best actions for dpt. planner: knows the task; the others: the searcher of that source.strategy, which knows "
        "what the row of the history has shown so far (where it draws, one draw per step)",
    )
    label_smoothing: float = option(0.0, "probability mass spread over all actions", ge=0, le=0.99)
    weighting: Literal["none", "improvement", "recency"] = option(
        "improvement",
        "weight of a step. none: equal; improvement: its return-to-go relative to other learners at that age; recency: "
        "proportional to its age",
    )
    discount: float = option(0.9, "discount of the return-to-go", ge=0, le=1)
    max_weight: float = option(20.0, "largest weight of a step if weighting is improvement", ge=1, le=1000)

    @model_validator(mode="after")
    def _check(self) -> Self:
        unread = self.name != "dpt" and self.labels != "planner"
        refuse(unread, f"objective.labels={self.labels} has no effect with objective.name={self.name}: it is for dpt")
        return self


def batch_context(spec: EnvSpec, batch: Batch) -> Context:
    """Context of the windows of a batch."""
    return context_of(Window.of(batch))


class Imitation:
    """Objective on the actions of a model in the world `spec`."""

    spec: EnvSpec

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Parameters of the model's head at every step of windows `[B, T]`, `[B, T, P]`; of Discrete actions logits,
        -inf for illegal actions."""
        return self.spec.legal_of(model(batch_context(self.spec, batch)), batch.obs)


@objective("ad", ObjectiveConfig)
class AlgorithmDistillation(Imitation):
    """Objective with the first equation above."""

    target = "action"  # column of the batch to predict

    def __init__(self, config: ObjectiveConfig, spec: EnvSpec, head: Head | None = None) -> None:
        """`head` of the model, which Discrete actions do not need. Raises `ConfigError` if others are smoothed."""
        discrete = isinstance(spec.action_space, Discrete)
        smoothed = f"objective.label_smoothing={config.label_smoothing} needs Discrete actions, not {spec.action_space}"
        refuse(config.label_smoothing and not discrete, f"{smoothed}: must be 0")
        self.label_smoothing, self.spec, self.weights = config.label_smoothing, spec, {"imitation": 1.0}
        self.head = None if discrete else head
        self.low_precision = spec.is_discrete  # bfloat16 has too few digits for numbers that are observed or chosen

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Loss over windows `[B, T]`. Metrics: the negative log likelihood without smoothing and weights (`nll`), and
        the share of steps where the most likely action is the target (`accuracy`). In a Box, `action_error` instead:
        the mean absolute difference of the target and the mode of the head, over steps and numbers of an action."""
        parameters, target = self.logits(model, batch).flatten(0, 1), getattr(batch, self.target).flatten(0, 1)
        if self.head:
            losses = -self.head.log_prob(parameters, target)
            nll, error = losses.detach().mean(), self.head.mode(parameters.detach()) - target
            metrics = {"accuracy": (error == 0).all(-1).float().mean()}
            if target.is_floating_point():
                metrics = {"action_error": error.abs().mean()}
        else:
            losses, nll = self._smoothed(parameters, target, batch), F.cross_entropy(parameters.detach(), target)
            metrics = {"accuracy": (parameters.argmax(-1) == target).float().mean()}
        return {"imitation": (losses * batch.weight.flatten()).mean()}, {"nll": nll} | metrics

    def _smoothed(self, logits: Tensor, target: Tensor, batch: Batch) -> Tensor:
        """Cross-entropies `[B * T]` of smoothed targets."""
        legal = self.spec.legal(batch.obs.flatten(0, 1))
        if legal is None:
            return F.cross_entropy(logits, target, label_smoothing=self.label_smoothing, reduction="none")
        each = -logits.log_softmax(-1)
        spread = each.masked_fill(~legal, 0.0).sum(-1) / legal.sum(-1)
        return torch.lerp(each.gather(-1, target[:, None])[:, 0], spread, self.label_smoothing)


@objective("dpt", ObjectiveConfig)
class DecisionPretraining(AlgorithmDistillation):
    """Decision pretraining (Lee et al., 2023): a_t is the action of a planner that knows the task. A model trained in
    this way performs posterior sampling. With `objective.labels` of a searcher, a_t is what this would do at that step
    (`sources.searchers.searcher.relabelled`), and the model learns to search as it does.

    *Differences from the paper:* the context is the stream's own past, in order and across episodes, and every step of
    it is a query, instead of a shuffled set of transitions with one query state."""

    target = "optimal_action"


class AwrConfig(Options):
    """Options of advantage-weighted policy extraction."""

    experiment_name: Name = option("awr", "folder of the policy under logs/<name>/, and its name in policy.model")
    temperature: float | None = option(None, "divisor of the advantages (null: use awr.inverse_temperature)", gt=0)
    inverse_temperature: float | None = option(
        10.0, "factor of the advantages; 0 clones the source (null: use awr.temperature)", ge=0
    )
    advantage_threshold: float = option(20.0, "largest weight of a step; its logarithm clips the exponent", gt=0)
    normalize: Literal["none", "mean", "softmax"] = option(
        "none", "none; mean: divide weights by their mean over the batch; softmax: the same before clipping"
    )
    num_epochs: int = option(
        0, "passes over all windows (0: use trainer.num_iterations)", ge=0, le=10**6, is_budget=True
    )
    initial_encoder: PathName = option(
        "none", "a checkpoint (.pt) whose trunk a new policy starts from (none: at random)"
    )
    resume: bool = option(True, "continue an earlier run; if false, a folder with one is an error", may_change=True)

    @model_validator(mode="after")
    def _check(self) -> Self:
        name, temperature, inverse = self.experiment_name, self.temperature, self.inverse_temperature
        given = f"awr.temperature={temperature} and awr.inverse_temperature={inverse}".replace("None", "null")
        refuse((temperature is None) == (inverse is None), f"{given}: one of them must be null, the other a number")
        reserved = f"must not be one of {', '.join(RESERVED)}, nor begin with evaluation"
        refuse(name in RESERVED or name.startswith("evaluation"), f"awr.experiment_name={name}: {reserved}")
        return self


class AdvantageWeightedRegression(Imitation):
    """Objective with the weights of the second equation above."""

    def __init__(self, config: AwrConfig, critic: ValueNetwork) -> None:
        self.config, self.critic, self.spec = config, critic.requires_grad_(False).eval(), critic.spec
        self.weights = {"imitation": 1.0}

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Loss. Metrics: `nll` and `accuracy` as in algorithm distillation, without weights; the mean `advantage`, the
        logarithm of the largest weight before clipping, the share of clipped weights, and the effective sample size as
        a share of the batch, (sum w)^2 / (N sum w^2)."""
        logits = self.logits(model, batch)
        nll = F.cross_entropy(in_full(logits).flatten(0, 1), batch.action.flatten(), reduction="none")  # [B * T]
        advantage = self.advantage(batch).flatten()
        log_weight, free = self.log_weights(advantage)
        relative = (log_weight - log_weight.max()).exp()  # not all 0, however small the weights are
        metrics = {
            "nll": nll.detach().mean(),
            "accuracy": (logits.argmax(-1) == batch.action).float().mean(),
            "advantage": advantage.mean(),
            "largest_weight": free.max(),
            "clipped": (free > math.log(self.config.advantage_threshold)).float().mean(),
            "effective_samples": relative.sum().square() / relative.square().sum() / len(relative),
        }
        return {"imitation": (nll * log_weight.exp()).mean()}, metrics

    @torch.no_grad()
    def advantage(self, batch: Batch) -> Tensor:
        """Advantages of the actions taken, `[B, T]`."""
        return self.critic(batch_context(self.spec, batch)).advantage.gather(-1, batch.action[..., None])[..., 0]

    def log_weights(self, advantage: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithms of the weights of steps with these advantages `[N]`, with and without the threshold."""
        free = inverse_temperature(self.config) * advantage
        if self.config.normalize == "softmax":
            free = free - _log_mean(free)
        log_weight = free.clamp(max=math.log(self.config.advantage_threshold))
        return (log_weight - _log_mean(log_weight) if self.config.normalize == "mean" else log_weight), free


def inverse_temperature(config: AwrConfig) -> float:
    """Factor of the advantages, from the one of the two options that is given."""
    return 1 / config.temperature if config.temperature else config.inverse_temperature or 0.0


def _log_mean(logs: Tensor) -> Tensor:
    """Logarithm of the mean of exp(`logs`); exact if all are equal."""
    largest = logs.max()
    return largest + (logs - largest).exp().mean().log()
