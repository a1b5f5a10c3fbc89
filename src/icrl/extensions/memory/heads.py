"""Gated recurrent units of many learners as one module, for worlds where an observation does not show the state, and
heads of actor-critics over their state.

L learners, N rows for each, T steps, B = L * N streams, K numbers in an observation, H hidden width.

A unit (Cho et al., 2014, arXiv 1406.1078; in PyTorch's form, with the reset gate behind the product) reads embedded
observations x:

    e = tanh(W x + b),    r, z = sigmoid of linear in e and h,    n = tanh(W_n e + b_n + r * (U_n h + c_n))
    h' = (1 - z) * n + z * h,    h = 0 at the start of an episode
"""

from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

from icrl.extensions.vectors.heads import VectorHeads
from icrl.extensions.vectors.stacked_mlp import RunningMoments, StackedMLP, by_learner, by_stream
from icrl.nn.networks import stacked
from icrl.randomness import mix
from icrl.sources.heads import body


class StackedGRU(nn.Module):
    """Gated recurrent units over normalised vectors. Weights are orthogonal, each gate's own, and biases start at 0."""

    def __init__(self, num_inputs: int, hidden_size: int, seeds: Tensor) -> None:
        super().__init__()

        def parameters(generator: Generator) -> list[Tensor]:
            def orthogonal(before: int, number: int = 1) -> Tensor:
                each = [torch.empty(before, hidden_size) for _ in range(number)]
                return torch.cat([nn.init.orthogonal_(one, generator=generator) for one in each], 1)

            return [orthogonal(num_inputs), orthogonal(hidden_size, 3), orthogonal(hidden_size, 3)]

        *inputs, recurrent = stacked(mix(seeds, 1), parameters)  # other numbers than those of the perceptrons behind
        self.hidden_size, self._num_learners = hidden_size, len(seeds)
        self.inputs, self.recurrent = StackedMLP(inputs), StackedMLP([recurrent])
        self.observed = RunningMoments(len(seeds), num_inputs)

    def forward(self, obs: Tensor, fresh: Tensor, state: Tensor) -> Tensor:
        """States `[T, B, H]` after each of the observations `[T, B, K]`, from the `state` `[B, H]` before the first;
        `fresh` `[T, B]` marks the first observations of episodes."""
        gates = self._gates(obs).unflatten(1, (len(obs), -1)).unbind(1)  # [L, N, 3 H] each
        kept = (~fresh).unflatten(1, (self._num_learners, -1)).float()[..., None]
        now, states = state.unflatten(0, (self._num_learners, -1)), list[Tensor]()
        for gate, keep in zip(gates, kept, strict=True):
            now = self._next(gate, now * keep)
            states.append(now)
        return torch.stack(states).flatten(1, 2)

    def after(self, states: Tensor, obs: Tensor) -> Tensor:
        """States `[T, B, H]` after one further observation each, `[T, B, K]`, of the same episodes."""
        return by_stream(self._next(self._gates(obs), by_learner(states, self._num_learners)), len(obs))

    def observe(self, obs: Tensor) -> None:
        """Take observations `[T, B, K]` into their running means and deviations."""
        self.observed.add(by_learner(obs, self._num_learners))

    def _gates(self, obs: Tensor) -> Tensor:
        """Share of the observations `[T, B, K]` in the gates, `[L, T * N, 3 H]`."""
        return self.inputs(self.observed.normalised(by_learner(obs, self._num_learners)))

    def _next(self, gates: Tensor, state: Tensor) -> Tensor:
        (reset, keep, new), (own_reset, own_keep, own_new) = gates.chunk(3, -1), self.recurrent(state).chunk(3, -1)
        keep = (keep + own_keep).sigmoid()
        return torch.lerp((new + (reset + own_reset).sigmoid() * own_new).tanh(), state, keep)


@body("gru")
class RecurrentHeads(VectorHeads):
    """Heads over the state of a GRU that has read the observations of the episode so far."""

    def _make_body(self, num_inputs: int, hidden_size: int, seeds: Tensor) -> nn.Module:
        self.memory_size = hidden_size
        return StackedGRU(num_inputs, hidden_size, seeds)

    def unroll(self, obs: Tensor, timestep: Tensor, memory: Tensor) -> Tensor:
        return self._with_flags(self.network.body(super()._rows(obs), timestep == 0, memory), obs)

    @torch.no_grad()
    def ahead(self, inputs: Tensor, next_obs: Tensor) -> Tensor:
        states = self.network.body.after(inputs[..., : self.memory_size], super()._rows(next_obs))
        return self._with_flags(states, next_obs)

    def _rows(self, obs: Tensor) -> Tensor:
        return obs

    def observe(self, obs: Tensor, returns: Callable[[], Tensor]) -> None:
        self.network.body.observe(super()._rows(obs))
        self.network.observe(None, returns())
