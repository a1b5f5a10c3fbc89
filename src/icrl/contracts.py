"""Interfaces that every part keeps: step, environment, policy, rollout, batch and objective.

Legend for shapes: T steps, B streams. A stream is one environment that is played episode after episode; a policy that
learns in context keeps its context over the episodes of its stream.
"""

import math
from typing import Any, NamedTuple, Protocol, TypeVar

from torch import Tensor, nn

State = TypeVar("State")
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
    your own, `envs.rollout.step_of` makes a checked step.
    """

    obs: Tensor  # int64, [B], or [B, K] if an observation has K numbers
    reward: Tensor  # int64, an index into the environment's reward values
    terminated: Tensor  # bool: the task ended (nothing to bootstrap from)
    truncated: Tensor  # bool: the time limit was reached (bootstrap from final_obs)
    final_obs: Tensor  # int64, of the shape of `obs`
    timestep: Tensor  # int64, steps since the last reset
    optimal_action: Tensor  # int64, of a planner that knows the task (num_actions: unknown); no learner reads it


class EnvSpec(NamedTuple):
    """Sizes of an environment, as far as a model or a table needs them.

    An observation is one number, or with `points` = (N, n) K of them: N points of n coordinates, each stored as the
    coordinate plus one and 0 for no point, then n + num_actions flags. The last num_actions flags mark legal actions.
    """

    num_obs: int  # numbers of observations lie in [0, num_obs)
    num_actions: int
    reward_values: tuple[float, ...]  # value of each reward 0 .. num_rewards - 1
    width: int  # an observation is (layer * width + row) * width + column; 0: the world is not a square room
    max_episode_steps: int
    success: str = "reward"  # rule that makes an episode a success, see `envs.rollout.is_success`
    points: tuple[int, int] = (0, 0)
    success_return: float = 0.0  # least return of a successful episode, if `success` is "return"

    @classmethod
    def of(cls, recorded: dict[str, Any]) -> "EnvSpec":
        """Spec from a manifest or a checkpoint: its fields, with lists for tuples."""
        values: Any = {name: tuple(value) if isinstance(value, list) else value for name, value in recorded.items()}
        return cls(**values)

    @property
    def num_rewards(self) -> int:
        return len(self.reward_values)

    @property
    def obs_shape(self) -> tuple[int, ...]:
        rows, dimension = self.points
        return ((rows + 1) * dimension + self.num_actions,) if rows else ()

    def legal(self, obs: Tensor) -> Tensor | None:
        """Legal actions for observations `[..., K]`, `[..., A]` bool; None if all actions are always legal."""
        return obs[..., -self.num_actions :] > 0 if self.points[0] else None

    def legal_of(self, values: Tensor, obs: Tensor, otherwise: float = -math.inf) -> Tensor:
        """`values` `[..., A]` of actions for observations `[..., K]`, with `otherwise` for illegal actions."""
        legal = self.legal(obs)
        return values if legal is None else values.masked_fill(~legal, otherwise)


_INTS = ("num_obs", "num_actions", "width", "max_episode_steps")
SPEC_FORM = {  # form of an `EnvSpec` in JSON, as `files.fits` takes it
    **dict.fromkeys(_INTS, int),
    **{"reward_values": [float], "success": str, "points": [int]},
}


class Env(Protocol[State]):
    """Environment as pure functions over tensors; a task is a row of a tensor `[B, task_dim]`."""

    spec: EnvSpec

    def all_tasks(self) -> Tensor:
        """Every task, `[num_tasks, task_dim]` int64."""

    def reset(self, tasks: Tensor, seeds: Tensor) -> tuple[State, Step]:
        """Start one stream per row of `tasks`. `seeds` `[B]` int64 determine all randomness of a stream, so a stream
        does not depend on the others. The returned `Step` has reward 0 and ends no episode."""

    def step(self, state: State, action: Tensor) -> tuple[State, Step]:
        """Advance every stream by `action` `[B]` int64; an episode that ends is followed by one on the same task."""

    def optimal_action(self, state: State) -> Tensor:
        """Best action in every stream's state, `[B]` int64; num_actions if it is unknown."""


class Policy(Protocol[Carry]):
    """Anything that acts: a source learner, the transformer, random, optimal, the searcher.

    The memory of a policy is in its carry, never in the object.
    """

    def initial_carry(self, num_streams: int) -> Carry: ...

    def act(self, carry: Carry, step: Step, noise: Tensor) -> tuple[Tensor, Carry]:
        """Choose actions `[B]` int64 for the observations in `step`. `noise` `[B]` is uniform in [0, 1): the only
        randomness that a policy may use at this step, one number per stream."""


class Rollout(NamedTuple):
    """Transitions `[T, B]` (`obs` and `next_obs` may be `[T, B, K]`), the columns of a history.

    The action was chosen on `obs` and `timestep`; `next_obs` is the observation after it, before any reset."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    next_obs: Tensor
    timestep: Tensor
    terminated: Tensor
    truncated: Tensor
    optimal_action: Tensor


class Sample(NamedTuple):
    """Training batch of a source in one update: W windows of T steps for each of L learners, `[T, L * W]`, ordered by
    learner."""

    rollout: Rollout
    weight: Tensor  # [L * W] float: weight of each window in its learner's mean loss; 1 by default
    targets: dict[str, Tensor]  # [T, L * W] each: computed by the learner's `targets` from the whole unroll


class Learned(NamedTuple):
    """Result of an update."""

    metrics: dict[str, Tensor]  # [L] each
    td_error: Tensor | None = None  # [L * W]: mean absolute TD error of each window, if the learner has one


class Batch(NamedTuple):
    """Windows of histories for an objective, `[B, T]` each (`obs` and `next_obs` may be `[B, T, K]`), int64 by default.

    A window never leaves its history row."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    next_obs: Tensor
    timestep: Tensor
    terminated: Tensor  # 0 or 1
    truncated: Tensor  # 0 or 1
    optimal_action: Tensor  # num_actions if it is unknown
    weight: Tensor  # float32: weight of a step in the loss
    training_reward: Tensor  # float32: reward that a critic learns from, computed by a plug-in from the observed one


AnyBatch = Any
"""Named tuple of tensors `[B, T, ...]` that an objective reads; `Batch` of those that learn from histories."""


class Objective(Protocol):
    """Training objective of a model: the loss is the sum of its terms, each times its weight."""

    weights: dict[str, float]

    def __call__(self, model: nn.Module, batch: AnyBatch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Terms of the loss by the names in `weights`, each a mean over the windows of `batch`, and scalar metrics."""

    def logits(self, model: nn.Module, batch: AnyBatch) -> Tensor:
        """Action logits of the model for `batch`, `[B, T, A]`."""


Metrics = dict[str, float]
Json = Any
