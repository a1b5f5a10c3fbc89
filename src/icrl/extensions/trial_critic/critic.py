"""Value head and generalised advantages for trials. T steps, B windows of trials.

A linear layer on the trunk predicts v_t, the advantage a_t of `training.policy_gradient`: the return to go over the
rest of the trial, across episodes, relative to the streams of the task. These values are the baseline of a generalised
advantage (Schulman et al., 2016, arXiv 1506.02438):

    r_t  = a_t - discount a_{t+1}                         the reward of the step in the same terms
    A_t  = sum over k >= t of (discount gae_lambda)^(k - t) (r_k + discount v_{k+1} - v_k)
    loss = clipped loss of A with mean 0 and deviation 1 over the batch - entropy_coefficient mean of H(pi)
           + VALUE_WEIGHT mean of (a_t - v_t)^2

a_{t+1} and v_{t+1} are 0 after the last step of a window. v begins as 0 and is that of the model at the update, without
a gradient in A. With gae_lambda = 1 and without what v has learned, A is a.

With one stream of each task, a is relative to the streams of all tasks, so that v learns how much a task pays, as the
values of RL^2 (Duan et al., 2016, arXiv 1611.02779) and VariBAD (Zintgraf et al., 2020, arXiv 1910.08348) do.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from icrl.extensions.ppo.ppo import gae
from icrl.nn.gpt import GPT
from icrl.nn.networks import in_float32
from icrl.runs.distributed import Ranks
from icrl.training.policy_gradient import BESIDE, PolicyGradient, TrialBatch

VALUE_WEIGHT = 0.5


def with_values(model: GPT, ranks: Ranks) -> Callable[..., PolicyGradient]:
    """Add a value head to the model; returns the constructor of an objective that trains it, with the arguments of
    `PolicyGradient`. Each of the `ranks` has an equal share of every batch."""
    value_head = nn.Linear(model.config.embed_dim, 1).to(model.policy_head.weight)
    for parameter in value_head.parameters():
        nn.init.zeros_(parameter)
    model.add_module(BESIDE, value_head)
    return partial(ValuedPolicyGradient, model.policy_head, value_head, ranks)


class ValuedPolicyGradient(PolicyGradient):
    """Objective with the loss above."""

    def __init__(self, policy_head: nn.Module, value_head: nn.Module, ranks: Ranks, *given: Any) -> None:
        super().__init__(*given)
        self._ranks = ranks
        self.weights["value"] = VALUE_WEIGHT
        self._value_head, self._error = value_head, torch.zeros(())
        policy_head.register_forward_pre_hook(self._read)

    def _read(self, _: nn.Module, given: tuple[Tensor]) -> None:
        """Keep the vectors `[B, T, D]` that the policy is computed from."""
        (self._hidden,) = given

    def __call__(self, model: nn.Module, batch: TrialBatch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        terms, metrics = super().__call__(model, batch)
        return terms | {"value": self._error}, metrics

    def advantages(self, batch: TrialBatch) -> Tensor:
        value = in_float32(self._value_head(self._hidden))[..., 0]
        self._error = (batch.weight * (batch.advantage - value).square()).mean()
        weight, rates = batch.weight.T, (self.config.discount, self.config.gae_lambda or 0.0)
        found = generalised(batch.advantage.T, value.detach().T, weight, *rates)
        found = found - self._ranks.average((weight * found).mean())
        return (found / self._ranks.average((weight * found.square()).mean()).sqrt().clamp(min=1e-6)).T


def generalised(relative: Tensor, value: Tensor, weight: Tensor, discount: float, gae_lambda: float) -> Tensor:
    """Advantages A `[T, B]` from a, v and the weights of steps, which are 0 after the last step of a trial."""

    def following(x: Tensor) -> Tensor:
        return torch.cat([x[1:], torch.zeros_like(x[:1])])

    last = (weight > 0) & (following(weight) == 0)
    reward = relative - discount * following(relative).masked_fill(last, 0.0)
    return gae(reward, value, following(value), last, torch.zeros_like(last), discount, gae_lambda)
