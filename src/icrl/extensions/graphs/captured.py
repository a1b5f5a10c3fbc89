"""Work that a GPU is given as a whole."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class Captured:
    """`function`, which maps tensors to tensors and draws no random numbers from PyTorch's generators, as a CUDA graph:
    the rollout of a small model is hundreds of kernels a step, which take longer to launch one by one than to run.

    On a GPU the first call runs it as it is, the second captures it, and the graph is replayed as long as inputs have
    the same shapes, with the same results. What else the function reads, such as parameters, may change in place alone.
    A function that waits for the device, such as one that steps environments in Python, is called every time, and so
    is any on a CPU."""

    def __init__(self, function: Callable[..., Sequence[Tensor]]) -> None:
        self._function, self._shapes, self._waits = function, list[torch.Size](), False
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[Tensor] = []
        self._outputs: Sequence[Tensor] = ()

    def __call__(self, *inputs: Tensor) -> Sequence[Tensor]:
        shapes = [one.shape for one in inputs]
        if shapes != self._shapes or not inputs[0].is_cuda:
            self._shapes, self._graph = shapes, None
            return self._function(*inputs)
        if self._graph is None and not self._waits:
            self._capture(inputs)
        if self._graph is None:
            return self._function(*inputs)
        for own, new in zip(self._inputs, inputs, strict=True):
            own.copy_(new)
        self._graph.replay()
        return [one.clone() for one in self._outputs]

    def _capture(self, inputs: Sequence[Tensor]) -> None:
        self._inputs = [one.clone() for one in inputs]
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._outputs = self._function(*self._inputs)
            self._graph = graph
        except RuntimeError:  # called as it is, the function raises an error of its own again
            self._waits = True
