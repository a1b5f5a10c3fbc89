"""Policy gradients over whole in-context trials: the bonus, the advantages and the loss. T steps, B streams.

A trial is T steps of one stream on one task, across episodes, with the context kept (RL^2, Duan et al., 2016,
arXiv 1611.02779; Wang et al., 2016, arXiv 1611.05763). S streams play each task. The reward to go of step t of stream s
runs to the end of the trial, across resets, so that finding out what helps in later episodes pays:

    x_t  = reward_t + bonus * 1[no success before or at t, and the observation after t is new in the trial]
    G_st = sum over k >= t of discount^(k - t) x_sk
    A_st = (G_st - mean over s of G_st) / root mean square of these differences over all s and t of the task

The advantages are relative to the group of streams of one task (GRPO: Shao et al., 2024, arXiv 2402.03300), without a
value function. Equal tasks form one group, such as all streams in the room without a goal; with S = 1 all streams do.
The loss is the clipped one of PPO (Schulman et al., 2017, arXiv 1707.06347), with r the ratio of the probability of
the action to that of the model that played the trial, H the entropy:

    loss = - mean of min(r A, clip(r, 0.8, 1.2) A) - entropy_coefficient mean of H(pi)

In a Box r is a ratio of densities, and H the differential entropy.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from icrl.config.options import Options, Rate, option, refuse
from icrl.config.schedules import Clock, make_schedule
from icrl.contracts import Rollout
from icrl.envs.rollout import is_success, returns_so_far
from icrl.nn.gpt import Window, context_of
from icrl.nn.heads import Head
from icrl.rl.returns import n_step_returns
from icrl.spaces import EnvSpec

_RATE: dict[str, Any] = {"kind": "linear", "progress": "percent", "points": [[0, 3e-3], [1, 2e-4]]}
_ENTROPY: dict[str, Any] = {"kind": "linear", "progress": "percent", "points": [[0, 0.03], [1, 0.003]]}
CLIP_RANGE = 0.2  # largest change of the probability ratio that the loss rewards
CRITICS: list[Any] = []  # of an extension: (model, ranks) -> objective, with a module `BESIDE` added to the model
BESIDE = "value_head"  # name of what is trained and saved beside a model, and that the model does without when it acts
NEVER = -1e9  # logit of an illegal action: its probability is 0, and 0 times it is not NaN as with -inf


class FinetuneConfig(Options):
    """Options of the policy gradients over in-context trials. Their optimizer is Muon, whatever `optimizer` says."""

    start: Literal["gpt", "none"] = option("gpt", "gpt: the model of stage two of `run`; none: random weights")
    num_iterations: int = option(
        110,
        "iterations: in each, all streams play a trial, and updates on these trials follow",
        ge=1,
        le=10**6,
        is_budget=True,
    )
    trial_steps: int = option(100, "env steps of a trial, across episodes", ge=2)
    num_tasks: int = option(0, "training tasks of each iteration, drawn anew (0, or more than there are: all)", ge=0)
    num_unsolvable: int = option(0, "additional tasks without a goal, which pay only the bonus; DarkRoom only", ge=0)
    num_rooms: int = option(
        0,
        "tasks in other rooms, whose size, place, start and goal are drawn (never a held-out goal); DarkRoom only",
        ge=0,
    )
    room_sizes: Annotated[list[Annotated[int, Field(ge=2, le=64)]], Field(min_length=2, max_length=2)] = option(
        [5, 8], "smallest and largest side of the other rooms; at most model.max_size"
    )
    num_streams: int = option(
        4, "streams of each task, compared with each other (1: with those of all tasks)", ge=1, le=10**5
    )
    num_mini_batches: int = option(8, "updates of an iteration, each on an equal share of the streams", ge=1, le=10**5)
    discount: float = option(0.96, "discount of a step, across episodes", ge=0, le=1)
    gae_lambda: float | None = option(None, "lambda of generalised advantages; null: no value head", ge=0, le=1)
    bonus: Annotated[Any, Rate(ge=0)] = option(
        0.25, "reward for an observation that is new in the trial, before its first success; 0 for vectors of numbers"
    )
    entropy_coefficient: Annotated[Any, Rate(ge=0)] = option(_ENTROPY, "weight of the entropy")
    learning_rate: Annotated[Any, Rate(ge=0)] = option(_RATE, "learning rate of Muon")

    former = {"num_epochs": 1, "clip_range": 0.2, "kl_coefficient": 0.0, "max_gradient_norm": 1.0}
    former |= {"experiment_name": "finetuned"}

    def drawn_of(self, number: int) -> int:
        """Training tasks of an iteration if there are `number`."""
        return min(self.num_tasks or number, number)

    def streams_of(self, number: int) -> int:
        """Streams of an iteration if there are `number` training tasks."""
        return (self.drawn_of(number) + self.num_unsolvable + self.num_rooms) * self.num_streams

    @model_validator(mode="after")
    def _check(self) -> Self:
        sizes, rate = self.room_sizes, self.learning_rate
        refuse(sizes[0] > sizes[1], f"finetune.room_sizes={sizes}: the first must be at most the second")
        counts_steps = isinstance(rate, dict) and rate.get("progress") == "env_steps"  # which Muon's options refuse
        refuse(counts_steps, f"finetune.learning_rate={rate}: progress must be percent, iterations or updates")
        luck = self.num_streams == 1 and self.gae_lambda is None  # with the task, which values learn to tell
        refuse(luck, "finetune.num_streams=1: must be at least 2, unless finetune.gae_lambda is a number")
        return self


class TrialBatch(NamedTuple):
    """Windows of B trials, `[B, T]` each, of observations `[B, T, *obs_shape]` and actions `[B, T, *action_shape]`."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    timestep: Tensor
    advantage: Tensor  # float32
    log_prob: Tensor  # float32: of the action, by the actor
    weight: Tensor  # float32, mean 1: 0 where an earlier window of the trial has the step, else the same everywhere


def successes(spec: EnvSpec, trials: Rollout) -> Tensor:
    """Steps `[T, B]` that make their episodes a success, as the world defines it."""
    value, last = trials.reward, trials.terminated | trials.truncated
    best = (trials.action == trials.optimal_action).view(*last.shape, -1).all(-1)
    so_far = torch.stack(returns_so_far(value, last, torch.zeros_like(value[0])))
    return torch.as_tensor(is_success(spec, value, trials.terminated, last, best, so_far))


def discoveries(spec: EnvSpec, trials: Rollout) -> Tensor:
    """Steps `[T, B]` before the first success of a trial whose next observation is new in it.

    The observations that actions were chosen on count as seen."""
    both = torch.stack([numbered_obs(trials.obs), numbered_obs(trials.next_obs)], dim=1).flatten(0, 1)  # [2 T, B]
    order = both.argsort(dim=0, stable=True)
    ordered = both.gather(0, order)
    first = torch.ones_like(both, dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]  # of equal ones, the earliest
    new = torch.zeros_like(first).scatter(0, order, first)[1::2]
    return new & (successes(spec, trials).cumsum(0) == 0)


def numbered_obs(obs: Tensor) -> Tensor:
    """Integers `[T, B]`, equal for equal observations `[T, B, *obs_shape]` of integers. Different ones of several
    numbers have the same with a chance of about 2^-64."""
    if obs.dim() == 2:
        return obs
    factors = torch.randint(-(2**62), 2**62, obs.shape[2:], generator=torch.Generator().manual_seed(0))
    return torch.stack([(step * factors.to(obs.device)).flatten(1).sum(1) for step in obs])  # modulo 2^64


def group_advantages(reward: Tensor, group: Tensor, discount: float) -> Tensor:
    """Advantages `[T, B]` of the second and third equation above, from x `[T, B]` and the number of the group that each
    stream is compared with, `group` `[B]` int64."""
    reward = reward.double()  # dividing by the spread would make a rest of rounding as large as a difference
    never = torch.zeros_like(reward, dtype=torch.bool)
    to_go = n_step_returns(reward, torch.zeros_like(reward), never, never, discount)
    size = group.bincount()

    def mean_of(x: Tensor) -> Tensor:
        """Mean `[T, B]` over the group of each stream."""
        return (x.new_zeros(len(x), len(size)).index_add_(1, group, x) / size)[:, group]

    difference = to_go - mean_of(to_go)
    spread = mean_of(difference.square().mean(0, keepdim=True)).sqrt()
    return (difference / spread.clamp(min=1e-6)).float()  # 0 where all streams are alike


def parameters_of(spec: EnvSpec, model: nn.Module, batch: Any) -> Tensor:
    """Parameters `[B, T, P]` of the head, from one uncached forward over windows of trials; illegal actions are
    improbable. The model is left in evaluation mode: dropout is off and a framed room in its middle, as in the policy
    that played, so that ratios compare like with like."""
    context = context_of(Window.of(batch))
    return spec.legal_of(model.eval()(context).float(), batch.obs, NEVER)  # float16 cannot hold NEVER


class PolicyGradient:
    """Objective with the loss above, of a model with the `head`. `progress()` are metrics of the last trials, shown
    beside those of an update; `clock()` is the time of schedules."""

    rates = "finetune.learning_rate"  # options that help if lower, in place of those of `optimizer`

    def __init__(
        self,
        config: FinetuneConfig,
        spec: EnvSpec,
        head: Head,
        progress: Callable[[], dict[str, Tensor]],
        clock: Callable[[], Clock] = lambda: Clock(0.0, 0, 0, 0),
    ) -> None:
        self.config, self.spec, self.head, self._progress, self._clock = config, spec, head, progress, clock
        self._entropy = make_schedule(config.entropy_coefficient)
        self.weights = {"policy": 1.0, "entropy": -self._entropy(clock())}
        self.low_precision = spec.is_discrete  # bfloat16 has too few digits for numbers that are observed or chosen

    def __call__(self, model: nn.Module, batch: TrialBatch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Terms of the loss. Metrics: the mean of |r - 1| (`ratio_change`), the share of steps where it is above the
        range (`clipped`), and the progress."""
        self.weights["entropy"] = -self._entropy(self._clock())
        parameters = parameters_of(self.spec, model, batch)
        advantage = self.advantages(batch)
        ratio = (self.head.log_prob(parameters, batch.action) - batch.log_prob).exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP_RANGE, 1 + CLIP_RANGE) * advantage)
        change = (ratio.detach() - 1).abs()

        def mean(values: Tensor) -> Tensor:
            return (batch.weight * values).mean()

        terms = {"policy": -mean(gain), "entropy": mean(self.head.entropy(parameters))}
        return terms, {"clipped": mean((change > CLIP_RANGE).float()), "ratio_change": mean(change)} | self._progress()

    def advantages(self, batch: TrialBatch) -> Tensor:
        """Advantages `[B, T]` in the loss, asked for after the forward pass of the model on the batch."""
        return batch.advantage

    def logits(self, model: nn.Module, batch: TrialBatch) -> Tensor:
        """Parameters of the model's head, `[B, T, P]`."""
        return parameters_of(self.spec, model, batch)
