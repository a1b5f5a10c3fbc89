"""The interfaces every part keeps: what an environment, a policy and a rollout are.

Legend for shapes: T steps, B streams. A stream is one environment that is played on and on, episode after
episode; a policy that learns in context keeps its context over the episodes of its stream.
"""

import math
from typing import Any, NamedTuple, Protocol, TypeVar

from torch import Tensor, nn

State = TypeVar("State")
Carry = TypeVar("Carry")


class PipelineError(Exception):
    """Something the user can act on. Entry points print the message without a traceback and exit with code 2."""


class Stopped(Exception):  # noqa: N818 - not an error: the run was asked to end, and did so in order
    """A run that was asked to end has saved and ends. Entry points print the message and exit with code 143."""


class ConfigError(PipelineError):
    """A wrong option: the message names the field, the value and what is allowed."""


class Step(NamedTuple):
    """What a stream shows after an action, with auto-reset in Gymnasium's SAME_STEP mode. Every field is `[B]`
    unless said otherwise.

    `obs` and `timestep` belong to the state the next action is chosen in, so after a reset they are those of the
    new episode; `final_obs` is the observation before the reset (equal to `obs` where no episode ended). Worlds of
    one's own make theirs by `steps.step_of`, which checks it.
    """

    obs: Tensor  # int64, [B] or, where it is many numbers, [B, K]
    reward: Tensor  # int64, an index into the environment's reward values
    terminated: Tensor  # bool: the task ended (nothing to bootstrap from)
    truncated: Tensor  # bool: the clock ran out (bootstrap from final_obs)
    final_obs: Tensor  # int64, of the shape of `obs`
    timestep: Tensor  # int64, steps since the last reset
    optimal_action: Tensor  # int64, of a planner that knows the task (num_actions: nobody knows); no learner reads it


class EnvSpec(NamedTuple):
    """The sizes a model or a table needs to know of an environment.

    An observation is one number, or with `points` = (N, n) K of them: N points of n coordinates, one more than each
    coordinate and 0 for no point, then n + num_actions flags, the last of which say of each action whether it is legal.
    """

    num_obs: int  # all numbers of observations are below
    num_actions: int
    reward_values: tuple[float, ...]  # of the rewards 0 .. num_rewards - 1
    width: int  # an observation is (layer * width + row) * width + column; 0: the world is no square room
    max_episode_steps: int
    success: str = "reward"  # what makes an episode a success, see `envs.episodes.is_success`
    points: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, recorded: dict[str, Any]) -> "EnvSpec":
        """From what manifests and checkpoints keep: its fields, with lists for tuples."""
        lists: dict[str, Any] = {name: tuple(value) for name, value in recorded.items() if isinstance(value, list)}
        return cls(**recorded | lists)

    @property
    def num_rewards(self) -> int:
        return len(self.reward_values)

    @property
    def obs_shape(self) -> tuple[int, ...]:
        """Of one observation."""
        rows, dimension = self.points
        return ((rows + 1) * dimension + self.num_actions,) if rows else ()

    def legal(self, obs: Tensor) -> Tensor | None:
        """Which actions may be done on observations `[..., K]`, `[..., A]` bool; None where there is no need to ask."""
        return obs[..., -self.num_actions :] > 0 if self.points[0] else None

    def legal_of(self, values: Tensor, obs: Tensor, otherwise: float = -math.inf) -> Tensor:
        """`values` `[..., A]` of actions on observations `[..., K]`, with `otherwise` in place of illegal ones."""
        legal = self.legal(obs)
        return values if legal is None else values.masked_fill(~legal, otherwise)


SPEC_FORM = {  # of an `EnvSpec` in JSON, as `files.fits` takes it
    "num_obs": int,
    "num_actions": int,
    "reward_values": [float],
    "width": int,
    "max_episode_steps": int,
    "success": str,
    "points": [int],
}


class Env(Protocol[State]):
    """An environment as pure functions over tensors; a task is a row of a tensor `[B, task_dim]`."""

    spec: EnvSpec

    def all_tasks(self) -> Tensor:
        """Every task, `[num_tasks, task_dim]` int64."""
        ...

    def reset(self, tasks: Tensor, seeds: Tensor) -> tuple[State, Step]:
        """Start one stream per row of `tasks`. `seeds` `[B]` int64 decide all that is random in a stream, so a
        stream does not depend on which others run beside it. The returned `Step` has reward 0 and no end."""
        ...

    def step(self, state: State, action: Tensor) -> tuple[State, Step]:
        """Advance every stream by `action` `[B]` int64; ended streams restart on the same task."""
        ...

    def optimal_action(self, state: State) -> Tensor:
        """The best action in every stream's state, `[B]` int64."""
        ...


class Policy(Protocol[Carry]):
    """Whatever acts: a source learner, the transformer, random, optimal, the searcher.

    What a policy remembers of a stream is in its carry, never in the object.
    """

    def initial_carry(self, num_streams: int) -> Carry: ...

    def act(self, carry: Carry, step: Step, noise: Tensor) -> tuple[Tensor, Carry]:
        """Choose actions `[B]` int64 for the observations in `step`. `noise` `[B]` is uniform in [0, 1): all the
        randomness a policy may use at this step, one number a stream."""
        ...


class Rollout(NamedTuple):
    """`[T, B]` transitions (`obs` and `next_obs` may be `[T, B, K]`). `obs` and `timestep` are what the action was
    chosen on, `next_obs` is what it led to before any reset. These are the columns of a history."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    next_obs: Tensor
    timestep: Tensor
    terminated: Tensor
    truncated: Tensor
    optimal_action: Tensor


class Sample(NamedTuple):
    """What a source learns from in one update: W windows of T steps for each of L learners, `[T, L * W]`, learner by
    learner."""

    rollout: Rollout
    weight: Tensor  # [L * W] float: of a window in the mean over its learner's windows; all 1 where nothing is weighted
    targets: dict[str, Tensor]  # [T, L * W] each: what the learner's `targets` made of the whole unroll


class Learned(NamedTuple):
    """What an update tells."""

    metrics: dict[str, Tensor]  # [L] each
    td_error: Tensor | None = None  # [L * W]: mean absolute TD error of each window, where there is such a thing


class Batch(NamedTuple):
    """Windows of histories, `[B, T]` each (`obs` and `next_obs` may be `[B, T, K]`), int64 unless said otherwise: what
    an objective reads. A window never leaves its history row."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    next_obs: Tensor
    timestep: Tensor
    terminated: Tensor  # 0 or 1
    truncated: Tensor  # 0 or 1
    optimal_action: Tensor  # num_actions where nobody knows it
    weight: Tensor  # float32: of a step in the loss
    training_reward: Tensor  # float32: the reward a critic learns from, made of the seen one by a plug-in


class Objective(Protocol):
    """What a model is trained to do: the loss is the sum of its terms, each times its weight."""

    weights: dict[str, float]

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The terms of the loss, each a mean over the windows of `batch`, by the names that `weights` has, and metrics,
        one number each."""
        ...

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """What the model says of the actions of `batch`, `[B, T, A]`."""
        ...


Metrics = dict[str, float]
Json = Any
