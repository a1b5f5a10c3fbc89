"""Networks of many learners as one module, over observations that can be listed, and what all networks share.

T steps, B streams, L learners, S observations, H hidden width, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.overrides import TorchFunctionMode

STD = 0.02  # initial standard deviation of embeddings, and of linear layers in a transformer (GPT-2)
LANES = 64  # numbers that a CPU's widest operations handle at a time: four vectors of 16


class Unfilled(TorchFunctionMode):
    """Context in which the parameters of new modules have no values yet: nothing is drawn, and no memory is touched."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


class JoinedLinear(nn.Linear):
    """Linear layers of one input whose outputs, of `sizes` channels, are computed in one product."""

    def __init__(self, num_inputs: int, *sizes: int) -> None:
        super().__init__(num_inputs, sum(sizes))
        self.sizes = sizes


def matrices_of(model: nn.Module) -> dict[int, tuple[int, ...]]:
    """Numbers of rows of the matrices in each weight of a linear or recurrent layer, by the identity of the weight."""
    found = dict[int, tuple[int, ...]]()
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            found[id(layer.weight)] = layer.sizes if isinstance(layer, JoinedLinear) else (layer.out_features,)
        elif isinstance(layer, nn.GRU):  # three gates
            found |= {id(weight): 3 * (layer.hidden_size,) for weight in layer.parameters() if weight.ndim == 2}
    return found


def in_float32(x: Tensor) -> Tensor:
    """`x` in float32 at least, because half precision holds no number above 65504."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def stacked(seeds: Tensor, parameters: Callable[[Generator], list[Tensor]]) -> list[Tensor]:
    """Initial parameters of all learners, `[L, ...]` each: those of learner k are a function of its own seed alone."""
    each = [parameters(Generator().manual_seed(seed)) for seed in seeds.tolist()]
    return [torch.stack(one) for one in zip(*each, strict=True)]


class StackedNetwork(nn.Module):
    """An embedding of the observation and a linear layer, L of them side by side.

    Observations are integers, so a learner's network is a table over them. `forward` computes the whole table, and
    acting until the next update is a look-up."""

    def __init__(self, num_learners: int, num_obs: int, num_outputs: int, hidden_size: int, seeds: Tensor) -> None:
        super().__init__()

        def parameters(generator: Generator) -> list[Tensor]:
            embedding = torch.randn(num_obs, hidden_size, generator=generator)
            heads, bound = torch.empty(hidden_size, num_outputs), hidden_size**-0.5
            return [embedding, heads.uniform_(-bound, bound, generator=generator)]

        self.embedding, self.heads = map(nn.Parameter, stacked(seeds, parameters))  # [L, S, H], [L, H, O]
        self.bias = nn.Parameter(torch.zeros(num_learners, 1, num_outputs))

    def forward(self) -> Tensor:
        """Outputs of every learner for every observation, `[L, S, O]`, in memory as `[O, L, S]`."""
        num_learners, num_obs, _ = self.embedding.shape
        return self.table()[:, : num_learners * num_obs].unflatten(1, (num_learners, num_obs)).permute(1, 2, 0)

    def table(self) -> Tensor:
        """The same as rows of outputs, `[O, L * S]` and zeros up to a multiple of `LANES`. So no learner is where an
        operation over such rows handles the last columns in another way, which rounds differently."""
        return _Outputs.apply(self.embedding, self.heads, self.bias)


class _Outputs(torch.autograd.Function):
    """`baddbmm(bias, embedding, heads)`, with few rows in the results of products instead of few columns, which is
    several times as fast on a CPU."""

    @staticmethod
    def forward(ctx: Any, *parameters: Tensor) -> Tensor:  # pyrefly: ignore
        embedding, heads, bias = parameters
        ctx.save_for_backward(embedding, heads)
        num_learners, num_obs, _ = embedding.shape
        num_columns = num_learners * num_obs
        table = embedding.new_empty(heads.shape[2], num_columns + -num_columns % LANES)
        table[:, num_columns:] = 0
        outputs = table[:, :num_columns].unflatten(1, (num_learners, num_obs))
        torch.add(torch.bmm(heads.mT, embedding.mT), bias.mT, out=outputs.transpose(0, 1))
        return table

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        (of_table,), (embedding, heads) = gradients, ctx.saved_tensors
        num_learners, num_obs, _ = embedding.shape
        gradient = of_table[:, : num_learners * num_obs].unflatten(1, (num_learners, num_obs)).permute(1, 2, 0)
        of_heads = torch.bmm(gradient.mT, embedding).mT
        return torch.bmm(gradient, heads.mT), of_heads, gradient.sum(1, keepdim=True)


ADAM_BETAS, ADAM_EPS = (0.9, 0.999), 1e-6  # of all source agents


class StackedAdam(torch.optim.Adam):
    """Adam (Kingma and Ba, 2015) for stacked networks, with the gradient clipped per learner."""

    def __init__(self, network: nn.Module, max_gradient_norm: float) -> None:
        super().__init__(network.parameters(), lr=0.0, betas=ADAM_BETAS, eps=ADAM_EPS, fused=True)  # lr: see descend
        self._max_gradient_norm = max_gradient_norm

    def descend(self, loss: Tensor, learning_rate: float) -> Tensor:
        """One step of every learner on its own `loss` `[L]`, with a gradient norm of at most `max_gradient_norm`.
        Returns the norms before clipping, `[L]`. The losses are summed, so each gradient is that of its own loss."""
        self.zero_grad()
        loss.sum().backward()
        parameters = self.param_groups[0]["params"]
        norms = [torch.linalg.vector_norm(p.grad, dim=tuple(range(1, p.ndim))) for p in parameters]
        norm = torch.stack([norm.square() for norm in norms], dim=1).cumsum(1)[:, -1].sqrt()
        scale = (self._max_gradient_norm / (norm + 1e-6)).clamp(max=1.0)
        for parameter in parameters:
            parameter.grad.mul_(scale.view(-1, *[1] * (parameter.ndim - 1)))
        self.param_groups[0]["lr"] = learning_rate
        ragged = [one for one in parameters if one.numel() % LANES and one.device.type == "cpu"]
        shapes = [parameter.shape for parameter in ragged]
        for parameter in ragged:
            self._reshape(parameter, lambda x: nn.functional.pad(x.flatten(), (0, -x.numel() % LANES)))
        self.step()
        for parameter, shape in zip(ragged, shapes, strict=True):
            self._reshape(parameter, lambda x, shape=shape: x[: shape.numel()].view(shape).clone())
        return norm

    def _reshape(self, parameter: Any, reshape: Callable[[Tensor], Tensor]) -> None:
        """Replace a parameter, its gradient and its moments. The fused step rounds the last numbers of a parameter in
        another way if they fill no vector, so zeros are put behind them: learner k must not depend on its place."""
        gradient = reshape(parameter.grad)
        parameter.grad = None
        parameter.data, state = reshape(parameter.data), self.state[parameter]
        parameter.grad = gradient
        for name in ("exp_avg", "exp_avg_sq"):
            if name in state:
                state[name] = reshape(state[name])
