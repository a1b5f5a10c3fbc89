"""Imitation in context: algorithm distillation and decision pretraining.

Both predict an action at every step of a window b of a history:

    loss = - mean over b, t of w_bt log pi(a_t | everything before it in the window, o_t)

Algorithm distillation (Laskin et al., 2022) predicts the learning agent's next action a_t, with the weights w of the
batch (`step_weights` in `data/lives.py`). If legal actions are known, pi is over these alone. Of actions that are not
Discrete, pi is the probability or the density of the model's head (`nn/heads.py`).
"""

from typing import ClassVar, Literal, Self

import numpy as np
import torch.nn.functional as F
from gymnasium.spaces import Discrete
from pydantic import model_validator
from torch import Tensor, nn

from icrl.config.options import OR_ELSEWHERE, Name, Options, option, refuse
from icrl.config.schedules import nearest
from icrl.contracts import Batch
from icrl.data.history_store import Histories
from icrl.nn.gpt import Window, context_of
from icrl.nn.heads import Head
from icrl.objectives import labels_makers, objective
from icrl.spaces import EnvSpec


class ObjectiveConfig(Options):
    program: ClassVar[str] = "train_gpt"  # that learns it
    name: Literal["ad", "dpt"] = option(
        "ad", "ad: predict the source's next action at every step; dpt: the best action by objective.labels"
    )
    labels: Name = option(
        "planner",
        "best actions for dpt. planner: those of a planner that knows the task; other names, of extensions: those of "
        "a policy that knows only what the row of the history has shown so far",
    )
    weighting: Literal["none", "improvement", "recency"] = option(
        "improvement",
        "weight of a step. none: equal; improvement: its return-to-go relative to other learners at that age; recency: "
        "proportional to its age",
    )
    discount: float = option(0.9, "discount of the return-to-go", ge=0, le=1)

    former = {"label_smoothing": 0.0, "max_weight": 20.0}

    @model_validator(mode="after")
    def _check(self) -> Self:
        unread = self.name != "dpt" and self.labels != "planner"
        refuse(unread, f"objective.labels={self.labels} has no effect with objective.name={self.name}: it is for dpt")
        known = ["planner", *(labels_makers() if self.labels != "planner" else ())]
        must = f"must be one of {', '.join(known)}{nearest(self.labels, known)}{OR_ELSEWHERE}"
        refuse(self.labels not in known, f"objective.labels={self.labels}: {must}")
        return self

    def rows(self, histories: Histories, rows: np.ndarray, num_steps: int) -> np.ndarray:
        """The rows whose first `num_steps` steps are windowed, of the selected `rows`; one may be there repeatedly."""
        return rows


class Imitation:
    """Objective on the actions of a model in the world `spec`."""

    spec: EnvSpec

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Parameters of the model's head at every step of windows, `[B, T, P]`; logits of illegal actions are -inf."""
        return self.spec.legal_of(model(context_of(Window.of(batch))), batch.obs)


@objective("ad", ObjectiveConfig)
class AlgorithmDistillation(Imitation):
    """Objective with the first equation above."""

    target = "action"  # column of the batch to predict

    def __init__(self, config: ObjectiveConfig, spec: EnvSpec, head: Head | None = None) -> None:
        """`head` of the model, which Discrete actions do not need."""
        self.spec, self.weights = spec, {"imitation": 1.0}
        self.head = None if isinstance(spec.action_space, Discrete) else head
        self.low_precision = spec.is_discrete  # bfloat16 has too few digits for numbers that are observed or chosen

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Loss over windows `[B, T]`. Metrics: the negative log likelihood without weights (`nll`), and
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
            losses = F.cross_entropy(parameters, target, reduction="none")
            nll = losses.detach().mean()
            metrics = {"accuracy": (parameters.argmax(-1) == target).float().mean()}
        return {"imitation": (losses * batch.weight.flatten()).mean()}, {"nll": nll} | metrics


@objective("dpt", ObjectiveConfig)
class DecisionPretraining(AlgorithmDistillation):
    """Decision pretraining (Lee et al., 2023): a_t is the action of a planner that knows the task. A model trained in
    this way performs posterior sampling. Other `objective.labels` have other actions a_t.

    *Differences from the paper:* the context is the stream's own past, in order and across episodes, and every step of
    it is a query, instead of a shuffled set of transitions with one query state."""

    target = "optimal_action"
