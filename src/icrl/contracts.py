"""Interfaces that every part keeps: step, environment, policy, rollout, batch and objective.

Legend for shapes: T steps, B streams. A stream is one environment that is played episode after episode; a policy that
learns in context keeps its context over the episodes of its stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from icrl.spaces import EnvSpec

AnyState = TypeVar("AnyState")
Carry = TypeVar("Carry")


class PipelineError(Exception):
    """Error that the user can act on. Programs print the message without a traceback and exit with code 2."""


class Stopped(Exception):  # noqa: N818 - not an error: the run was asked to end
    """A run that was asked to end has saved its state. Programs print the message and exit with code 143."""


class ConfigError(PipelineError):
    """Wrong option: the message names the field, the value and what is allowed."""


class Step(NamedTuple):
    """Result of an action in B streams, with auto-reset in Gymnasium's SAME_STEP mode. A field is `[B]` by default.

    `obs` and `timestep` belong to the state in which the next action is chosen, so after a reset they are those of the
    new episode; `final_obs` is the observation before the reset (equal to `obs` if no episode ended). For a world of
    your own, `envs.steps.step_of` makes a checked step.
    """

    obs: Tensor  # [B, *obs_shape], of the spec's `obs_dtype`
    reward: Tensor  # float32
    terminated: Tensor  # bool: the task ended (nothing to bootstrap from)
    truncated: Tensor  # bool: the time limit was reached (bootstrap from final_obs)
    final_obs: Tensor  # of the shape and dtype of `obs`
    timestep: Tensor  # int64, steps since the last reset
    optimal_action: Tensor  # [B, *action_shape]: of a planner that knows the task, or `EnvSpec.unknown_action`


class Env(Protocol[AnyState]):
    """Environment as pure functions over tensors; a task is a row of a tensor `[B, task_dim]`, int64 or float32."""

    spec: EnvSpec

    def all_tasks(self) -> Tensor:
        """Every task, `[num_tasks, task_dim]`."""

    def reset(self, tasks: Tensor, seeds: Tensor) -> tuple[AnyState, Step]:
        """Start one stream per row of `tasks`. `seeds` `[B]` int64 determine all randomness of a stream, so a stream
        does not depend on the others. The returned `Step` has reward 0 and ends no episode."""

    def step(self, state: AnyState, action: Tensor) -> tuple[AnyState, Step]:
        """Advance every stream by `action` `[B, *action_shape]`; after an episode comes one on the same task."""

    def optimal_action(self, state: AnyState) -> Tensor:
        """Best action in every stream's state, `[B, *action_shape]`; see `EnvSpec.unknown_action`."""


class Policy(Protocol[Carry]):
    """Anything that acts: a source learner, the transformer, random, optimal, the searcher.

    The memory of a policy is in its carry, never in the object.
    """

    def initial_carry(self, num_streams: int) -> Carry: ...

    def act(self, carry: Carry, step: Step, noise: Tensor) -> tuple[Tensor, Carry]:
        """Choose actions `[B, *action_shape]` for the observations in `step`. `noise` `[B]` is uniform in [0, 1): the
        only randomness that a policy may use at this step, one number per stream (`randomness.spread`: several)."""


class Rollout(NamedTuple):
    """Transitions `[T, B]`, of observations `[T, B, *obs_shape]` and actions `[T, B, *action_shape]`: the columns of a
    history, with the dtypes of `Step`.

    The action was chosen on `obs` and `timestep`; `next_obs` is the observation after it, before any reset."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    next_obs: Tensor
    timestep: Tensor
    terminated: Tensor
    truncated: Tensor
    optimal_action: Tensor

    def each(self, change: Callable[[Tensor], Tensor]) -> Rollout:
        """The result of `change` for each column."""
        return Rollout(*map(change, self))

    @classmethod
    def joined(cls, parts: Iterable[Rollout], dim: int = 0) -> Rollout:
        """One rollout of `parts`, which follow each other in time, or stand side by side with `dim=1`."""
        return cls(*(torch.cat(columns, dim) for columns in zip(*parts, strict=True)))


class Sample(NamedTuple):
    """Training batch of a source in one update: W windows of T steps for each of L learners in turn, `[T, L * W]`."""

    rollout: Rollout
    weight: Tensor  # [L * W] float: weight of each window in its learner's mean loss; 1 by default
    targets: dict[str, Tensor]  # [T, L * W, ...] each: computed by the learner's `targets` from the whole unroll


class UpdateResult(NamedTuple):
    """Result of an update."""

    metrics: dict[str, Tensor]  # [L] each
    td_error: Tensor | None = None  # [L * W]: mean absolute TD error of each window, if the learner has one


class Batch(NamedTuple):
    """Windows of histories for an objective, `[B, T]` each, of observations `[B, T, *obs_shape]` and actions
    `[B, T, *action_shape]` in the dtypes of `Step`; int64 by default.

    A window never leaves its history row."""

    obs: Tensor
    action: Tensor
    reward: Tensor  # float32
    next_obs: Tensor
    timestep: Tensor
    terminated: Tensor  # 0 or 1
    truncated: Tensor  # 0 or 1
    optimal_action: Tensor  # see `EnvSpec.unknown_action`
    weight: Tensor  # float32: weight of a step in the loss
    training_reward: Tensor  # float32: reward that values are learned from: the recorded one, or that of a plug-in


AnyBatch = Any
"""Named tuple of tensors `[B, T, ...]` that an objective reads; `Batch` of those that learn from histories."""


class Objective(Protocol):
    """Training objective of a model: the loss is the sum of its terms, each times its weight. It may have
    `low_precision` (it learns as well in bfloat16), `warn(update, metrics)`, and `rates`, `lowered` (see `fit`)."""

    weights: dict[str, float]

    def __call__(self, model: nn.Module, batch: AnyBatch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Terms of the loss by the names in `weights`, each a mean over the windows of `batch`, and scalar metrics."""

    def logits(self, model: nn.Module, batch: AnyBatch) -> Tensor:
        """Action logits of the model for `batch`, `[B, T, A]`."""


Metrics = dict[str, float]
Json = Any
