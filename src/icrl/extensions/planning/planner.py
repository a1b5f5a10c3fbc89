"""Policy that imagines steps before it acts (Son et al., 2025, arXiv 2502.19009).

B streams, A actions, K = `objective.beams`, H = `objective.horizon`, N imagined streams. In an imagined step the most
probable reward r and the most probable observation follow each action; the model reads them as if they had happened.
The imagined value of a first action a, and the policy, are

    Q(a) = max over kept continuations that begin with a of  sum over k < H of discount^k r_{t+k}
    pi_plan(a) ~ pi(a | h_t) if Q(a) = max Q, else 0

Of all continuations that begin with a, each step keeps the K with the largest sum so far; of equal ones, those that pi
finds more probable. No reward follows the end of an episode. So if no reward is in sight, pi_plan is pi.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from icrl.app.root import Config, rule
from icrl.config.modules import reads_record
from icrl.config.options import replace
from icrl.contracts import ConfigError
from icrl.evaluation.kinds import Kind, TrainedPolicy, kinds, plain_gpt
from icrl.extensions.planning.world_model import PlanningConfig, PlanningHead, Predictions
from icrl.nn.cache import Cache, TokenCache
from icrl.nn.gpt import GPT, Context
from icrl.nn.gpt_policy import Acting, PolicyConfig
from icrl.spaces import EnvSpec
from icrl.training.policy_gradient import FinetuneConfig


class Imagined(NamedTuple):
    """Streams after their newest imagined step, `[N]` each."""

    prev_obs: Tensor
    action: Tensor
    reward: Tensor
    prev_timestep: Tensor
    obs: Tensor
    timestep: Tensor
    ended: Tensor  # bool: nothing more is paid
    total: Tensor  # discounted rewards so far
    log_prob: Tensor  # of the actions so far

    @property
    def context(self) -> Context:
        """Input of the model, one step."""
        first = torch.zeros_like(self.ended)
        return Context(*(column[:, None] for column in (*self[:6], first)))


class Planned(Acting):
    """`model` with the policy above. Its own context is shorter, so that imagined steps find room in that of the
    model."""

    def __init__(self, model: GPT, options: PlanningConfig, clock: int = 0) -> None:
        """`clock`: steps of an episode where the model plays, if other than in its training."""
        super().__init__()
        length = model.config.context_len - options.horizon + 1
        self.model, self.options, self.spec = model, options, model.spec
        self.clock = clock or model.spec.max_episode_steps
        self.config = replace(model.config, context_len=length)
        assert isinstance(model.head, PlanningHead), "a rule below"
        self._split = model.head.split

    def new_cache(self, num_streams: int) -> Cache:
        return self.model.new_cache(num_streams)

    @torch.no_grad()
    def forward(self, context: Context, cache: Sequence[TokenCache] = ()) -> Tensor:
        """Action logits `[B, T, A]`. With a cache the T steps continue it, and the result is that of the last one,
        `[B, 1, A]`."""
        if not cache:
            cache = self.new_cache(len(context.obs))
            steps = (Context(*(column[:, [t]] for column in context)) for t in range(context.obs.shape[1]))
            return torch.cat([self(step, cache) for step in steps], dim=1)
        found = self._predict(context, cache)
        values = self.values(found, context.obs[:, -1], context.timestep[:, -1], cache)
        return found.action.masked_fill(values < values.amax(-1, keepdim=True), -torch.inf)[:, None]

    def values(self, found: Predictions, obs: Tensor, timestep: Tensor, cache: Sequence[TokenCache]) -> Tensor:
        """Imagined values of first actions, `[B, A]`, given the predictions at the newest step of a `cache`, which
        stays as it is."""
        zeros = torch.zeros(len(obs), device=obs.device)
        now, rows = Imagined(obs, obs, zeros, timestep, obs, timestep, zeros.bool(), zeros, zeros), obs
        num_actions, beams = self.spec.num_actions, self.options.beams
        for depth in range(self.options.horizon):
            if depth:
                if depth == 1 or beams > 1:  # else each stream goes on in its own row
                    cache = self._copied(cache, rows)
                found = self._predict(now.context, cache)
            after = self._after(now, found, self.options.discount**depth)
            groups = len(obs) * num_actions  # one for each first action
            kept = _best(after.total.view(groups, -1), after.log_prob.view(groups, -1), beams)
            now, rows = Imagined(*(column[kept] for column in after)), kept // num_actions
        return now.total.view(len(obs), num_actions, -1).amax(-1)

    def _predict(self, context: Context, cache: Sequence[TokenCache]) -> Predictions:
        """Predictions at the last step of a context, `[N, ...]`."""
        return self._split(self.model(context, cache)[:, -1])

    def _copied(self, cache: Sequence[TokenCache], rows: Tensor) -> Cache:
        """A cache with these `rows` of another, some of them several times."""
        copy = self.new_cache(len(rows))
        copy.replace(slice(None), cache, rows)
        for own, theirs in zip(copy, cache, strict=True):
            own.length = theirs.length
        return copy

    def _after(self, now: Imagined, found: Predictions, discount: float) -> Imagined:
        """All streams that follow each of N, `[N * A]`, given the predictions there."""
        spec, number = self.spec, self.spec.num_actions
        before = Imagined(*(column.repeat_interleave(number) for column in now))
        reward, obs = spec.reward_of(found.reward.argmax(-1)).flatten(), found.next_obs.argmax(-1).flatten()
        timestep, log_prob = before.timestep + 1, found.action.log_softmax(-1).flatten()
        return Imagined(
            prev_obs=before.obs,
            action=torch.arange(number, device=obs.device).repeat(len(found.action)),
            reward=reward,
            prev_timestep=before.timestep,
            obs=obs.clamp(max=spec.num_obs - 1),
            timestep=timestep.clamp(max=spec.max_episode_steps - 1),
            ended=before.ended | (obs == spec.num_obs) | (timestep == self.clock),
            total=before.total + discount * reward.masked_fill(before.ended, 0.0),
            log_prob=before.log_prob + log_prob,
        )


def _best(total: Tensor, log_prob: Tensor, number: int) -> Tensor:
    """Flat indices of the `number` best in each row `[n, m]`: the largest `total`, then the largest `log_prob`."""
    order = log_prob.argsort(descending=True, stable=True)
    order = order.gather(1, total.gather(1, order).argsort(descending=True, stable=True))
    first = torch.arange(len(total), device=total.device)[:, None] * total.shape[1]
    return (first + order[:, :number]).flatten()


def planned_gpt(config: Config, spec: EnvSpec, weights: dict[str, Any], device: torch.device) -> Planned:
    """Loader of a model that plans. Raises `ConfigError` if it did not learn to predict."""
    options, model = config.objective, plain_gpt(config, spec, weights, device)
    if not isinstance(options, PlanningConfig):
        raise ConfigError(f"policy.model=planned: objective.name={options.name} has no world model; must be planning")
    return Planned(model, options, config.env.max_episode_steps)


class PlannedKind(Kind):
    """Distilled models that plan, with the options of the objective that are given now."""

    def open(self, config: Config, device: torch.device) -> TrainedPolicy:
        options, opened = config.objective, super().open(config, device)
        assert isinstance(options, PlanningConfig), "a rule below"
        planning = f"{opened.checksum}+{options.horizon},{options.beams},{options.discount}"
        return opened._replace(checksum=planning)


@kinds("planned")
def planned_kind(policy: PolicyConfig, finetune: FinetuneConfig) -> Kind | None:
    """The model of stage two, which plans."""
    is_planned = policy.model == "planned" and not policy.advantage_scale
    return PlannedKind("gpt", "train_gpt", (), {}, planned_gpt) if is_planned else None


@rule
def _in_planning(config: Config) -> Iterator[str]:
    """Conflicts of the head, the objective, the policy and the context."""
    options, model, planned = config.objective, config.model, config.policy.model == "planned"
    predicts = isinstance(options, PlanningConfig)
    if predicts and model.head != "planning":
        yield "$objective.name learns predictions that $model.head does not make: it must be planning"
    if model.head == "planning" and not predicts:
        yield "$model.head predicts what $objective.name does not learn: give objective=planning"
    if planned and not predicts:
        yield "$policy.model imagines what a model predicts: $objective.name must be planning"
    if planned and config.evaluation.ablations and not reads_record():
        yield "$evaluation.ablations would plan anew at every step of a context with $policy.model: give false"
    if planned and isinstance(options, PlanningConfig) and options.horizon >= model.context_len:
        yield "$objective.horizon must be below $model.context_len, which holds imagined steps too"
