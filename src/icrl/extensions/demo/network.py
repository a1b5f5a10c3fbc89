"""Export of an in-context model to ONNX: T new steps and a cache in; logits, attention and the longer cache out.

One stream, T new steps, S steps so far, A actions, L layers, H heads. The page in the browser reads one step at a time,
and many at once where a context is read again. A step costs one token: the keys and values of those before are inputs.
Recurrent trunks have a state in their place, and read one step at a time only.

    steps        int32 [T, 6]: previous obs, previous action, previous time step, obs, time step, 1 at the first step
    prev_reward  float32 [T]
    cache_i      columns of the cache, as in `nn.cache`: of S steps, or states
    logits       float32 [T, A]
    attention    float32 [L, H, T, S + T]: weights on each step, of the token that predicts the action; sums to 1
    grown_i      columns of the cache of S + T steps
"""

from __future__ import annotations

import logging
import warnings
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim
from torch.overrides import TorchFunctionMode

from icrl.config.options import refuse
from icrl.contracts import PipelineError
from icrl.nn.cache import KVCache, TokenCache
from icrl.nn.gpt import GPT, Context, Window, context_of
from icrl.nn.transformer import TRUNKS
from icrl.rl.statistics import Floats

TOLERANCE = 1e-4  # largest difference between the logits of the exported model and of PyTorch
NUM_NUMBERS = 6  # of a step, in the table above
_OPSET = 18
_TRACED = 3, 4  # T and S of the example; a dimension of 0 or 1 would be taken for a constant


def is_recurrent(model: GPT) -> bool:
    """True for a trunk that keeps a state, and no tokens."""
    return not issubclass(TRUNKS[model.config.trunk].cache, KVCache)


class GrownKeys(KVCache):
    """Cache whose new tokens are concatenated, because a graph does not write in place."""

    def __init__(self, *columns: Tensor) -> None:
        """`columns` of the tokens so far, `[layers, B, heads, tokens, channels]` each."""
        super().__init__(*columns)
        self.length = columns[0].shape[3]
        self._grown = list[list[Tensor]]()

    def append(self, layer: int, *new: Tensor) -> list[Tensor]:
        self._grown.append([torch.cat([old[layer], part], 2) for old, part in zip(self.columns, new, strict=True)])
        return self._grown[layer]

    def grown(self) -> list[Tensor]:
        """Columns of all tokens, after every layer has appended."""
        return [torch.stack(layers) for layers in zip(*self._grown, strict=True)]


class GrownState(TokenCache):
    """States of recurrent layers. Those at the start of a context are zeros."""

    def __init__(self, *columns: Tensor) -> None:
        super().__init__(*columns)
        self._grown = list[Tensor]()

    def read(self, layer: int) -> Tensor:
        return self.columns[0][layer]

    def write(self, layer: int, state: Tensor) -> None:
        self._grown.append(state)

    def grown(self) -> list[Tensor]:
        """States after the step, after every layer has written."""
        return [torch.stack(self._grown)]


class PlainAttention(TorchFunctionMode):
    """Mode in which attention is computed in the open. `weights` keeps those of each call, `[B, H, T, S]`."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = list[Tensor]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not F.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        query, key, value, mask = args[:4]
        key, value = (part.repeat_interleave(query.shape[1] // part.shape[1], 1) for part in (key, value))
        scores = query @ key.mT * query.shape[-1] ** -0.5
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        self.weights.append(scores.softmax(-1))
        return self.weights[-1] @ value


class Exported(nn.Module):
    """The graph that is exported; see the table above for its inputs and outputs."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.model, self.is_recurrent = model.eval(), is_recurrent(model)

    def forward(self, steps: Tensor, prev_reward: Tensor, columns: list[Tensor]) -> tuple[Tensor, ...]:
        prev_obs, prev_action, prev_timestep, obs, timestep, first = steps.long().T[:, None]
        context = Context(prev_obs, prev_action, prev_reward[None], prev_timestep, obs, timestep, first > 0)
        own = columns[: 1 if self.is_recurrent else 2]  # the columns of an induction layer follow
        cache: list[Any] = [(GrownState if self.is_recurrent else GrownKeys)(*own)]
        cache += [GrownKeys(*columns[len(own) :])] if self.model.induction else []
        with PlainAttention() as attention:
            logits = self.model(context, cache)[0]
        grown = [column for part in cache for column in part.grown()]
        if self.is_recurrent:
            return logits, *grown
        weights = attention.weights[-self.model.config.num_layers :]
        per_step = [self.model.tokens_per_step] * len(weights)  # queries
        if self.model.config.tokens == "cross":
            per_step[-1] = 1
        return logits, torch.stack(list(map(self._by_step, weights, per_step))), *grown

    def _by_step(self, weights: Tensor, per_step: int) -> Tensor:
        """Attention `[H, T, S + T]` of the last of the `per_step` queries of each step, to all tokens of each step."""
        of_last = weights[0].unflatten(1, (-1, per_step))[:, :, -1]
        return of_last.unflatten(2, (-1, self.model.tokens_per_step)).sum(-1)


def empty_columns(model: GPT, num_steps: int = 0) -> list[Tensor]:
    """Columns of a cache of `num_steps` steps, all zeros. The states of a recurrent trunk are zeros at the start."""
    config = model.config
    shapes = TRUNKS[config.trunk].cache_shapes(config, num_steps * model.tokens_per_step)
    columns = [torch.zeros(config.num_layers, 1, *shape) for shape in shapes]
    visits = [column for part in model.new_cache(1)[1:] for column in part.columns]
    return columns + [torch.zeros_like(column[:, :, :, :num_steps]) for column in visits]


def export_network(model: GPT) -> bytes:
    """The model as an ONNX file. Raises `ConfigError` if a package of the extra `[demo]` is missing, and
    `PipelineError` if the exported model does not compute what PyTorch does."""
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    refuse(missing, f"the export needs the packages {', '.join(missing)}: pip install 'in-context-rl[demo]'")
    window, expected = example_of(model)  # first, because the model makes tables when it is first used
    exported = Exported(model)
    num_new, num_old = (1, 1) if exported.is_recurrent else _TRACED
    columns = empty_columns(model, num_old)
    example = (torch.zeros(num_new, NUM_NUMBERS, dtype=torch.int32), torch.zeros(num_new), columns)
    fixed = dict[int, Any]()
    new, old = (fixed, fixed) if exported.is_recurrent else ({0: Dim("new")}, {3: Dim.DYNAMIC})
    outputs = ["logits"] + ["attention"] * (not exported.is_recurrent) + [f"grown_{i}" for i in range(len(columns))]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of the exporter about itself, as is its log about torchvision
        logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)
        program = torch.onnx.export(
            exported,
            example,
            input_names=["steps", "prev_reward", *(f"cache_{i}" for i in range(len(columns)))],
            output_names=outputs,
            opset_version=_OPSET,
            dynamic_shapes=(new, new, [old for _ in columns]),
            verbose=False,
        )
    if program is None:
        raise PipelineError("PyTorch's exporter returned no model")
    content = program.model_proto.SerializeToString()
    difference = np.abs(logits_of(content, model, window) - expected).max()
    if difference > TOLERANCE:
        raise PipelineError(f"the exported model differs from PyTorch by {difference:.1e}, more than {TOLERANCE}")
    return content


def example_of(model: GPT, num_steps: int = 24) -> tuple[Window, Floats]:
    """A random window of a whole context or `num_steps` steps, and the logits `[T, A]` of PyTorch on it."""
    spec, size = model.spec, (1, min(num_steps, model.config.context_len))
    random = torch.Generator().manual_seed(0)
    obs, action, reward = (
        torch.randint(high, size, generator=random) for high in (spec.num_obs, spec.num_actions, spec.num_rewards)
    )
    window = Window(obs, action, spec.reward_of(reward), torch.arange(size[1])[None] % spec.max_episode_steps)
    with torch.no_grad():
        return window, model.eval()(context_of(window))[0].numpy()


def logits_of(content: bytes, model: GPT, window: Window) -> Floats:
    """Logits `[T, A]` of the exported model `content` on a window `[1, T]`: all steps but two at once, then each of
    these with the cache of those before."""
    runtime, context = import_module("onnxruntime"), context_of(window)  # of the extra [demo]
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    numbers = [context.prev_obs, context.prev_action, context.prev_timestep, context.obs, context.timestep]
    steps = torch.stack([*numbers, context.first.long()], dim=-1)[0].int().numpy()
    columns, logits = [column.numpy() for column in empty_columns(model)], list[Floats]()
    ends = range(1, len(steps) + 1) if is_recurrent(model) else (len(steps) - 2, len(steps) - 1, len(steps))
    for first, end in pairwise((0, *ends)):
        given = {"steps": steps[first:end], "prev_reward": context.prev_reward[0, first:end].numpy()}
        found = session.run(None, given | {f"cache_{i}": column for i, column in enumerate(columns)})
        logits.append(found[0])
        columns = found[len(found) - len(columns) :]
    return np.concatenate(logits)
