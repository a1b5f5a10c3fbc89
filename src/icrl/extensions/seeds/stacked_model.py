"""Several models of one shape as one: parameters have a leading axis, and windows of model k follow those of k - 1.

K models, B windows of each. Layers without parameters see K B windows, the others multiply batches of matrices, so the
models cost about as many operations as one, on larger tensors.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icrl.config.options import refuse
from icrl.nn.encoders import SmoothTable, Table

_ALONE = "cannot be trained as one program with others: train one by one, with train_gpt"


def stacked(models: Sequence[nn.Module]) -> nn.Module:
    """Module that maps windows `[K * B, ...]` as `models` map `[B, ...]` each. The parameters of the models become
    views of its own, `[K, ...]`. Raises `ConfigError` if the models differ in more than parameters."""
    made, names = deepcopy(models[0]), [name for name, _ in models[0].named_parameters()]
    for name in names:
        parts = [model.get_parameter(name) for model in models]
        whole = nn.Parameter(torch.stack([part.detach() for part in parts]), parts[0].requires_grad)
        for part, own in zip(parts, whole.detach(), strict=True):
            part.data = own
        owner, _, leaf = name.rpartition(".")
        setattr(made.get_submodule(owner), leaf, whole)
    for module in made.modules():
        if form := _form_of(module):
            module.forward = partial(form, module)
    for name, first in models[0].named_buffers():
        alike = all(torch.equal(first, model.get_buffer(name)) for model in models[1:])
        refuse(not alike, f"models with other numbers in {name} {_ALONE}")
    for model in models:
        model.register_state_dict_post_hook(_cloned)
    return made


def check_stackable(model: nn.Module) -> None:
    """Raise `ConfigError` if the model has layers with parameters that do not exist for several models at once."""
    for module in model.modules():
        known = _form_of(module) or not [*module.parameters(recurse=False)]
        refuse(not known, f"a model with a layer {type(module).__name__} {_ALONE}")


def _cloned(_: nn.Module, state: dict[str, Any], __: str, ___: Any) -> None:
    """Copy the parameters in `state`, so that a file of them holds no other model's."""
    state.update({name: value.clone() for name, value in state.items()})


def _form_of(module: nn.Module) -> Callable[..., Any] | None:
    return next((form for kind, form in _FORMS.items() if isinstance(module, kind)), None)


def _linear(module: nn.Linear, x: Tensor) -> Tensor:
    flat = x.reshape(len(module.weight), -1, x.shape[-1])
    mapped = torch.baddbmm(module.bias[:, None], flat, module.weight.mT)
    return mapped.view(*x.shape[:-1], -1)


def _lookup(tables: Tensor, rows: Tensor) -> Tensor:
    """Rows of K tables `[K, size, D]`, the first of which is for the first `len(rows) / K` of the `rows`, and so on."""
    first_rows = torch.arange(len(tables), device=rows.device).repeat_interleave(len(rows) // len(tables))
    rows = rows + (first_rows * tables.shape[1]).view(-1, *[1] * (rows.ndim - 1))
    return F.embedding(rows, tables.flatten(0, 1))


def _embedding(module: nn.Embedding, numbers: Tensor) -> Tensor:
    return _lookup(module.weight, numbers)


def _smooth_table(module: SmoothTable, numbers: Tensor) -> Tensor:
    return _lookup(module.share @ module.weight, numbers)


def _table(module: Table, values: Tensor, first: Tensor) -> Tensor:
    return _lookup(module.weight, module.rows(values, first))


def _layer_norm(module: nn.LayerNorm, x: Tensor) -> Tensor:
    normal = F.layer_norm(x, module.normalized_shape, None, None, module.eps)
    flat = normal.view(len(module.weight), -1, x.shape[-1])
    return torch.addcmul(module.bias[:, None], flat, module.weight[:, None]).view(x.shape)


_FORMS: dict[type[nn.Module], Callable[..., Any]] = {
    nn.Linear: _linear,
    nn.Embedding: _embedding,
    SmoothTable: _smooth_table,
    Table: _table,
    nn.LayerNorm: _layer_norm,
}
