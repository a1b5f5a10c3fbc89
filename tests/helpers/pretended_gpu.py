"""A GPU that is pretended on a CPU, so that tensors left on the wrong device are found where there is none.

Tensors of `device="cuda"` are ordinary ones with a mark. Within `pretended`, an operation on a marked and an unmarked
tensor raises the error that PyTorch raises for two devices, and so does a marked one that is read as an array. Kernels,
bits and speed are those of the CPU: what a GPU computes is checked by `test_gpu.py` on one.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from threading import Thread
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
_INDEXING = {"__getitem__", "__setitem__", "copy_", "index_put_", "index_put"}  # may take a tensor of the CPU
_FREE = _INDEXING | {"_has_compatible_shallow_copy_type"}
_HOST = {"numpy", "__array__", "__dlpack__"}
_MOVES = {"cpu", "to"}


def marked(value: Any) -> bool:
    return isinstance(value, Tensor) and getattr(value, "on_gpu", False)


def _mark(value: Any, on_gpu: bool) -> Any:
    if isinstance(value, Tensor):
        value.on_gpu = on_gpu
    return value


def _tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors_in(value)


def _kind(device: Any) -> str:
    return torch.device(device).type


class _Pretended(TorchFunctionMode):
    def __torch_function__(self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), getattr(function, "__name__", "")
        if name in ("__get__", "__set__"):
            return self._property(function, name, args, kwargs)
        tensors = [*_tensors_in(args), *_tensors_in(kwargs.values())]
        on_gpu = any(map(marked, tensors))
        if name in _HOST and on_gpu:
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()")
        if name in _MOVES:
            return self._moved(function, name, args, kwargs)
        if on_gpu and name not in _FREE and any(not marked(one) and one.dim() for one in tensors):
            shapes = [(tuple(one.shape), "cuda" if marked(one) else "cpu") for one in tensors]
            raise RuntimeError(f"Expected all tensors to be on the same device, in {name}: {shapes}")
        if name in _INDEXING and tensors and not marked(tensors[0]) and on_gpu and name != "copy_":
            raise RuntimeError(f"indices and values should be on the CPU, as the tensor of {name} is")
        if kwargs.get("device") is not None:
            on_gpu = _kind(kwargs["device"]) == "cuda"
            kwargs["device"] = CPU
        found = function(*args, **kwargs)
        if isinstance(found, Tensor) and any(found is one for one in tensors):
            return found  # changed in place
        if isinstance(found, Tensor):
            return _mark(found, True) if on_gpu else found
        return tree_map(lambda one: _mark(one, True), found) if on_gpu else found

    def _property(self, function: Any, name: str, args: Any, kwargs: Any) -> Any:
        which, on_gpu = function.__self__.__name__, marked(args[0])
        if name == "__set__":
            if which == "data":
                _mark(args[0], marked(args[1]))
            return function(*args, **kwargs)
        if which in ("device", "is_cuda", "is_cpu") and on_gpu:
            return {"device": GPU, "is_cuda": True, "is_cpu": False}[which]
        found = function(*args, **kwargs)
        return _mark(found, True) if on_gpu and isinstance(found, Tensor) else found

    def _moved(self, function: Any, name: str, args: Any, kwargs: Any) -> Any:
        source, *others = args
        if name == "cpu":
            return source.clone().detach() if marked(source) else function(*args, **kwargs)
        if "device" in kwargs:
            others.append(kwargs.pop("device"))
        on_gpu, kept = marked(source), list[Any]()
        for one in others:
            if isinstance(one, torch.device | str):
                on_gpu = _kind(one) == "cuda"
            elif isinstance(one, Tensor):
                on_gpu = marked(one)
                kept.append(one.dtype)
            elif isinstance(one, torch.dtype):
                kept.append(one)
        moved = function(source, *kept, **kwargs) if kept or kwargs else source
        if on_gpu == marked(source):
            return _mark(moved, True) if on_gpu and moved is not source else moved
        return _mark(moved.clone() if moved is source else moved, on_gpu)


@contextmanager
def pretended() -> Iterator[None]:
    """Programs, with the threads that they start, find one GPU."""
    state, restore = torch.get_rng_state, torch.set_rng_state
    replaced: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "is_bf16_supported": lambda *_: True,
        "get_device_name": lambda _: "pretended GPU",
        "synchronize": lambda *_: None,
        "get_rng_state": lambda *_: state(),
        "set_rng_state": lambda value, *_: restore(value),
    }
    run = Thread.run

    def run_pretended(thread: Thread) -> None:
        with _Pretended():
            run(thread)

    new = Parameter.__new__

    def new_parameter(cls: type[Parameter], data: Any = None, *args: Any, **kwargs: Any) -> Any:
        return _mark(new(cls, data, *args, **kwargs), marked(data))

    read = torch.load

    def read_pretended(*args: Any, map_location: Any, **kwargs: Any) -> Any:
        on_gpu = _kind(map_location) == "cuda"
        return tree_map(lambda one: _mark(one, on_gpu), read(*args, map_location=CPU, **kwargs))

    loads = patch.object(torch, "load", read_pretended)
    parameters = patch.object(Parameter, "__new__", new_parameter)
    cudnn = {"flags": lambda **_: nullcontext(), "is_acceptable": lambda _: False}
    kernels = patch.multiple(torch.backends.cudnn, **cudnn)
    names = patch.multiple(torch.cuda, **replaced)
    threads = patch.object(Thread, "run", run_pretended)
    with names, kernels, parameters, loads, threads, _Pretended():
        yield
