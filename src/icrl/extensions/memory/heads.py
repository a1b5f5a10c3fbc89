"""Heads of actor-critics with a memory."""

import torch
from torch import Tensor, nn

from icrl.extensions.memory.stacked_gru import StackedGRU
from icrl.extensions.vectors.heads import VectorHeads
from icrl.sources.heads import body


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

    def observe(self, obs: Tensor, returns: Tensor) -> None:
        self.network.body.observe(super()._rows(obs))
        self.network.observe(None, returns)
