"""Lower bounds on the memory and disk space of programs, so that too large options are refused at once.

A run that would fit is never refused (see `memory.check_fits`). K numbers in an observation, B streams or windows, T
steps, D width.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from icrl.contracts import EnvSpec, Rollout
from icrl.data.history_store import OBSERVATIONS, column_dtypes
from icrl.nn.critic import ValueNetwork
from icrl.nn.gpt import GPT
from icrl.nn.networks import PointValues, point_layers, read_net_arch
from icrl.nn.transformer import NUM_STREAMS
from icrl.runs.intervals import interval_of
from icrl.runs.memory import Need, check_fits, check_memory, free_disk
from icrl.sources.dqn import DQNConfig
from icrl.sources.options import NetworkConfig, ReplayConfig
from icrl.sources.pace import BLOCK, num_iterations, unrolled, window_length
from icrl.sources.q_learning import QLearningConfig
from icrl.training.optimizers import SGDConfig

if TYPE_CHECKING:
    from icrl.config.root import Config
    from icrl.nn.gpt import GPTConfig
    from icrl.point_game.options import PlayersConfig

_INT, _FLOAT = 8, 4  # bytes of an int64 and of a float32
_META = torch.device("meta")  # modules built there take no memory and draw no random numbers


def check_stage_one(config: Config, spec: EnvSpec, num_tasks: int, device: torch.device) -> None:
    """Raise `ConfigError` if stage one on `num_tasks` training tasks needs more memory than `device` has, or its
    histories, if they do not exist yet, need more than the disk has."""
    check_memory(config, stage_one(config, spec, num_tasks), device)
    folder, source = config.folder("histories"), config.source
    if not (folder / "manifest.json").exists():
        size = num_tasks * source.num_learners * source.history_steps * _recorded_bytes(spec)
        options = ("tasks.num_train", "source.num_learners", "source.history_steps")
        check_fits(config, [Need("histories", size, options)], free_disk(folder), f"disk for {folder}")


def stage_one(
    config: Config, spec: EnvSpec, num_tasks: int, group: str = "source", *, recorded: bool = True
) -> list[Need]:
    """Needs of source agents: an unroll, the learners, their replay and, if `recorded`, unwritten steps and an
    evaluation. `group` holds the option `num_learners`."""
    source, step = config.source, _step_bytes(spec)
    learners, per_learner = num_tasks * source.num_learners, f"{group}.num_learners"
    streams, per_stream = learners * source.num_envs, (per_learner, "source.num_envs")
    unroll = streams * int(source.unroll_length) * step
    needs = [Need("an unroll", unroll, (*per_stream, "source.unroll_length"))]
    if isinstance(source, QLearningConfig):
        needs.append(Need("Q-tables", learners * spec.num_obs * spec.num_actions * _FLOAT, (per_learner,)))
    if isinstance(source, NetworkConfig):
        is_dqn, width = isinstance(source, DQNConfig), source.hidden_size
        layers = point_layers(spec, spec.num_actions + (not is_dqn), width)
        number = sum((inputs + 1) * outputs for inputs, outputs in layers.values())
        if not spec.obs_shape:  # an embedding replaces the first two layers
            number = spec.num_obs * width + (width + 1) * layers["heads"][1]
        copies = 4 + is_dqn  # parameters, gradients, two averages of Adam, and a target network
        size = learners * number * copies * _FLOAT
        needs.append(Need("networks and Adam's state", size, (per_learner, "source.hidden_size")))
    if isinstance(source, ReplayConfig) and source.replays:
        size = streams * source.replay_buffer_length * _recorded_bytes(spec)
        needs.append(Need("replay", size, (*per_stream, "source.replay_buffer_length")))
        if source.draws:
            size = learners * source.mini_batch_size * window_length(source, 1) * step
            needs.append(Need("a mini-batch", size, (per_learner, "source.mini_batch_size")))
    if recorded:
        checkpoints, iterations = config.checkpoints, num_iterations(source)
        between = interval_of(checkpoints.num_checkpoints, checkpoints.checkpoint_interval, iterations) or iterations
        waiting = min(int(between * source.unroll_length), unrolled(source, iterations))
        spacing = "checkpoints.num_checkpoints" if checkpoints.num_checkpoints else "checkpoints.checkpoint_interval"
        needs.append(
            Need("steps between checkpoints", streams * waiting * _recorded_bytes(spec), (*per_stream, spacing))
        )
    if recorded and source.evaluate:
        episodes, environments = config.evals.num_eval_episodes, config.evals.num_eval_environments
        size = learners * environments * _played(math.ceil(episodes / environments)) * step
        options = ("source.num_learners", "evals.num_eval_environments", "evals.num_eval_episodes")
        needs.append(Need("an evaluation", size, options))
    return needs


def fitting_gpt(config: Config, spec: EnvSpec, num_ranks: int, num_frozen: int = 0) -> list[Need]:
    """Needs of training a sequence model, beside the `num_frozen` parameters of a teacher."""
    with _META:
        trained, _ = _parameters(GPT(config.model, spec))
    widths = ("model.num_layers", "model.embed_dim", "model.ff_dim")
    return [_state(config, trained, num_frozen, widths), *_batches(config, config.model, spec, num_ranks, "model")]


def fitting_critic(config: Config, trunk: GPTConfig, spec: EnvSpec, num_ranks: int) -> list[Need]:
    """Needs of training a critic whose trunks have the form `trunk`."""
    decoder, encoder = config.decoder, config.encoder
    with _META:
        trained, frozen = _parameters(ValueNetwork(trunk, decoder, config.critic, spec))
    widths = ("encoder.num_layers", "encoder.embed_dim", "encoder.ff_dim")
    if decoder.ff_dim > encoder.embed_dim:
        widths = ("decoder.num_layers", "decoder.ff_dim")
    batch, *activations = _batches(
        config, trunk, spec, num_ranks, "encoder", 4 * decoder.ff_dim * (decoder.num_layers - 1)
    )
    if config.critic.value_trunk_grad == "none":
        activations = activations[:1]  # of heads
    return [_state(config, trained, trained + 2 * frozen, widths), batch, *activations]  # the target network is frozen


def _state(config: Config, trained: int, frozen: int, options: tuple[str, ...]) -> Need:
    optimizer = config.optimizer
    states = int(optimizer.momentum > 0) if isinstance(optimizer, SGDConfig) else 2
    size = (trained * (2 + states) + frozen) * _element(config.device.dtype)
    return Need("parameters, gradients and the optimizer's state", size, options)


def _batches(
    config: Config, model: GPTConfig, spec: EnvSpec, num_ranks: int, group: str, of_heads: int = 0
) -> list[Need]:
    """Needs of a batch and of the activations that a backward pass reads: `of_heads` numbers per step, and those of
    each block but the last, which may have fewer tokens. A block keeps the inputs of norms and linear layers, queries,
    keys, values, and both sides of the activation."""
    trainer, width, amp = config.trainer, model.embed_dim, config.device.amp_dtype
    size, length = trainer.mini_batch_size // num_ranks, trainer.mini_batch_length or config.model.context_len
    steps, element = size // trainer.gradient_accumulation_steps * length, _element(config.device.dtype)
    kept = steps * (element if amp == "none" else _element(amp))  # bytes of one number per step
    of_block = width if trainer.activation_checkpointing else 6 * width + 2 * model.ff_dim
    of_trunk = _tokens(model) * (1 + (model.num_layers - 1) * of_block)
    scores = steps * length * model.num_heads * _FLOAT if model.induction else 0  # one per pair of steps
    options = ("trainer.mini_batch_size", "model.context_len")
    return [
        Need("a batch", size * length * (math.prod(spec.obs_shape) + 4) * _INT, options),
        Need("activations of heads", kept * of_heads, ("trainer.mini_batch_size", "decoder.num_layers")),
        Need("activations of a batch", kept * of_trunk, (*options, f"{group}.num_layers")),
        Need("attention to earlier visits", scores, (*options, f"{group}.num_heads")),
    ]


def playing(
    config: Config,
    model: GPTConfig,
    spec: EnvSpec,
    num_streams: int,
    num_episodes: int,
    device: torch.device,
    options: tuple[str, ...],
) -> list[Need]:
    """Needs of a `model` in context: its cache and the rollout. `options` determine streams and episodes."""
    played = _played(num_episodes)
    held = model.context_len if device.type == "cuda" else min(model.context_len, played)
    numbers = 2 * model.num_layers * num_streams * held * _tokens(model) * model.embed_dim
    return [
        Need(
            "keys and values of the context",
            numbers * _element(config.device.dtype),
            (*options, "model.context_len", "model.num_layers"),
        ),
        Need("the rollout", num_streams * played * _step_bytes(spec), options),
    ]


def evaluation_amid(
    config: Config, model: GPTConfig, spec: EnvSpec, num_tasks: int, device: torch.device
) -> list[Need]:
    """Needs of an evaluation on `num_tasks` tasks during training."""
    evals = config.evals
    episodes = math.ceil(evals.num_eval_episodes / evals.num_eval_environments)
    options = ("evals.num_eval_environments", "evals.num_eval_episodes")
    return playing(config, model, spec, num_tasks * evals.num_eval_environments, episodes, device, options)


def bootstrap(config: Config, num_tasks: int) -> Need:
    """Need of an interval: the count of each task and the mean of each episode, in every resample."""
    options = config.evaluation
    size = options.num_bootstrap * (num_tasks + options.num_episodes) * _INT
    return Need("the resamples of an interval", size, ("evaluation.num_bootstrap", "evaluation.num_episodes"))


def players(config: PlayersConfig) -> list[Need]:
    """Needs of training host and agent of the point game, and of their matches."""
    game, element = config.game, _element(config.device.dtype)
    position, needs = game.max_num_points * game.dimension, list[Need]()
    for name in config.learning:
        role, is_host = config.roles[name], name == "host"
        others = 0 if is_host else game.dimension
        actions = 2**game.dimension - game.dimension - 1 if is_host else game.dimension
        layers = read_net_arch(f"{name}.net_arch", role.net_arch)
        with _META:
            number = sum(_parameters(PointValues(game.max_num_points, game.dimension, others, actions, layers)))
        copies = 3 + (2 if role.optimizer == "adam" else int(role.momentum > 0))  # gradients and a target network
        seen, width = position + others, sum(layer.width for layer in layers)
        batch = role.batch_size * (2 * seen + width) * element
        needs += [
            Need("networks and the optimizer's state", number * copies * element, (f"{name}.net_arch",)),
            Need("a batch", batch, (f"{name}.batch_size", f"{name}.net_arch")),
            Need("transitions", config.replay.size * 2 * seen * element, ("replay.size", "game.max_num_points")),
        ]
    option = max("num_games", "num_final_games", key=lambda option: getattr(config.evaluation, option))
    size = getattr(config.evaluation, option) * position * _INT
    return [*needs, Need("the positions of a match", size, (f"evaluation.{option}", "game.max_num_points"))]


def _parameters(module: nn.Module) -> tuple[int, int]:
    """Number of trained and of frozen parameters."""
    trained = sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
    return trained, sum(parameter.numel() for parameter in module.parameters()) - trained


def _step_bytes(spec: EnvSpec) -> int:
    """Bytes of a transition in a rollout: two observations, four other numbers, two flags."""
    return (2 * math.prod(spec.obs_shape) + 4) * _INT + 2


def _recorded_bytes(spec: EnvSpec) -> int:
    """Bytes of a transition in the dtypes of histories."""
    sizes = {name: np.dtype(dtype).itemsize for name, dtype in column_dtypes(spec).items()}
    return sum(sizes[name] * (math.prod(spec.obs_shape) if name in OBSERVATIONS else 1) for name in Rollout._fields)


def _played(num_episodes: int) -> int:
    """Least env steps of a stream in an evaluation of `num_episodes` episodes, with at least one step each."""
    return -(-num_episodes // BLOCK) * BLOCK


def _tokens(model: GPTConfig) -> int:
    return 1 if model.tokens == "transition" else NUM_STREAMS


def _element(dtype: str) -> int:
    return getattr(torch, dtype).itemsize
