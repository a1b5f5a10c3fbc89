"""Lower bounds on the memory and disk space of programs, so that too large options are refused at once.

A run that would fit is never refused (see `check_fits`). K numbers in an observation, B streams or windows, T
steps, D width.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from icrl.data.columns import column_forms, step_dtypes
from icrl.nn.cache import KVCache
from icrl.nn.gpt import GPT, GPTConfig
from icrl.nn.networks import parameters_of
from icrl.nn.transformer import NUM_STREAMS, TRUNKS
from icrl.runs.checkpoint import interval_of
from icrl.runs.device import Need, check_fits, check_memory, dtype_of, free_disk
from icrl.sources import source_class
from icrl.sources.pace import BLOCK, num_iterations, unrolled
from icrl.spaces import EnvSpec
from icrl.training.optimizers import SGDConfig

if TYPE_CHECKING:
    from icrl.app.root import Config

Keys = tuple[str, ...]  # dotted keys of options

_INT, _FLOAT, _HALF = 8, 4, 2  # bytes of an int64, of a float32, and of numbers in mixed precision
EVALS = ("evals.num_eval_environments", "evals.num_eval_episodes")
META = torch.device("meta")  # modules built there take no memory and draw no random numbers


def check_stage_one(config: Config, spec: EnvSpec, num_tasks: int, device: torch.device) -> None:
    """Raise `ConfigError` if stage one on `num_tasks` training tasks needs more memory than `device` has, or its
    histories, if they do not exist yet, need more than the disk has."""
    check_memory(config, stage_one(config, spec, num_tasks), device)
    folder, source = config.folder("histories"), config.source
    if not (folder / "manifest.json").exists():
        size = num_tasks * source.num_learners * source.history_steps * recorded_bytes(spec)
        options = ("tasks.num_train", "source.num_learners", "source.history_steps")
        check_fits(config, [Need("histories", size, options)], free_disk(folder), f"disk for {folder}")


def stage_one(
    config: Config, spec: EnvSpec, num_tasks: int, group: str = "source", *, recorded: bool = True
) -> list[Need]:
    """Needs of source agents: an unroll, the learners with what they keep and, if `recorded`, unwritten steps and an
    evaluation. `group` holds the option `num_learners`."""
    source, step, kept = config.source, step_bytes(spec), recorded_bytes(spec)
    learners, per_learner = num_tasks * source.num_learners, f"{group}.num_learners"
    streams, per_stream = learners * source.num_envs, (per_learner, "source.num_envs")
    unroll = streams * int(source.unroll_length) * step
    needs = [Need("an unroll", unroll, (*per_stream, "source.unroll_length"))]
    for what, (size, options) in source_class(source.name).sizes(source, spec).items():
        needs.append(Need(what, learners * size, (per_learner, *options)))
    if recorded:
        checkpoints, iterations = config.checkpoints, num_iterations(source)
        between = interval_of(checkpoints.num_checkpoints, checkpoints.checkpoint_interval, iterations) or iterations
        waiting = streams * min(int(between * source.unroll_length), unrolled(source, iterations)) * kept
        spacing = "checkpoints.num_checkpoints" if checkpoints.num_checkpoints else "checkpoints.checkpoint_interval"
        needs.append(Need("steps between checkpoints", waiting, (*per_stream, spacing)))
    if recorded and source.evaluate:
        episodes, environments = config.evals.num_eval_episodes, config.evals.num_eval_environments
        size = learners * environments * _played(math.ceil(episodes / environments)) * step
        needs.append(Need("an evaluation", size, ("source.num_learners", *EVALS)))
    return needs


def gpt_training(config: Config, spec: EnvSpec, num_ranks: int, num_frozen: int = 0) -> list[Need]:
    """Needs of training a sequence model, beside the `num_frozen` parameters of a teacher."""
    with META:
        trained, _ = parameters_of(GPT(config.model, spec))
    return model_training(config, config.model, spec, num_ranks, "model", trained, num_frozen)


def model_training(
    config: Config,
    model: GPTConfig,
    spec: EnvSpec,
    ranks: int,
    group: str,
    trained: int,
    frozen: int,
    heads: int = 0,
    learns: bool = True,
) -> list[Need]:
    """Needs of the `trained` and `frozen` parameters, a batch, and the activations that a backward pass reads: `heads`
    numbers per step, and, if the trunk `learns`, those of each block but the last, which may have fewer tokens: those
    of the layer that mixes steps, and both sides of the activation."""
    trainer, optimizer, width, amp = config.trainer, config.optimizer, model.embed_dim, config.device.amp_dtype
    element = dtype_of(config).itemsize
    states = int(optimizer.momentum > 0) if isinstance(optimizer, SGDConfig) else 2
    size, length = trainer.mini_batch_size // ranks, trainer.mini_batch_length or config.model.context_len
    steps = size // trainer.gradient_accumulation_steps * length
    tokens = 1 if model.tokens == "transition" else NUM_STREAMS
    mixing = TRUNKS[model.trunk].activations(model, tokens * length)
    of_block = width if trainer.activation_checkpointing else mixing + 2 * model.ff_dim
    numbers = heads + learns * tokens * (1 + (model.num_layers - 1) * of_block)  # per step
    scores = learns * model.induction * length * model.num_heads * _FLOAT  # per step: one for each step before it
    rounded = {"none": element, "auto": min(element, _HALF)}.get(amp, _HALF)  # bytes of a number that is kept
    activations = steps * (numbers * rounded + scores)
    options = ("trainer.mini_batch_size", "model.context_len")
    widths = (f"{group}.num_layers", f"{group}.embed_dim", f"{group}.ff_dim")
    return [
        Need("parameters, gradients and the optimizer's state", (trained * (2 + states) + frozen) * element, widths),
        Need("a batch", size * length * (math.prod(spec.obs_shape) + 4) * _INT, options),
        Need("activations of a batch", activations, (*options, f"{group}.num_layers")),
    ]


def playing(
    config: Config, model: GPTConfig, spec: EnvSpec, streams: int, episodes: int, device: torch.device, options: Keys
) -> list[Need]:
    """Needs of a `model` in context: its cache and the rollout. `options` determine streams and episodes."""
    played = _played(episodes)
    held = model.context_len if device.type == "cuda" else min(model.context_len, played)
    layer, tokens = TRUNKS[model.trunk], held * (1 if model.tokens == "transition" else NUM_STREAMS)
    numbers = sum(map(math.prod, layer.cache_shapes(model, tokens)))
    cache = streams * model.num_layers * numbers * dtype_of(config).itemsize
    length = ("model.context_len",) if issubclass(layer.cache, KVCache) else ()
    return [
        Need("the cache of the context", cache, (*options, *length, "model.num_layers")),
        Need("the rollout", streams * played * step_bytes(spec), options),
    ]


def bootstrap(config: Config, num_tasks: int) -> Need:
    """Need of an interval: the count of each task and the mean of each episode, in every resample."""
    options = config.evaluation
    size = options.num_bootstrap * (num_tasks + options.num_episodes) * _INT
    return Need("the resamples of an interval", size, ("evaluation.num_bootstrap", "evaluation.num_episodes"))


def step_bytes(spec: EnvSpec) -> int:
    """Bytes of a transition in a rollout."""
    dtypes, forms = step_dtypes(spec), column_forms(spec)
    return sum(dtypes[name].itemsize * math.prod(shape) for name, (_, shape) in forms.items())


def recorded_bytes(spec: EnvSpec) -> int:
    """Bytes of a transition in the dtypes of histories."""
    return sum(np.dtype(dtype).itemsize * math.prod(shape) for dtype, shape in column_forms(spec).values())


def _played(num_episodes: int) -> int:
    """Least env steps of a stream in an evaluation of `num_episodes` episodes, with at least one step each."""
    return -(-num_episodes // BLOCK) * BLOCK
