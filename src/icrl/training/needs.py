"""What programs take of memory and disk at least: what they certainly allocate, so that nothing that would run is
refused. See `memory.check_fits`.

K numbers in an observation, B streams or windows, T steps, D width.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from icrl.collection.pace import BLOCK, draws, num_iterations, replays, unrolled, window_length
from icrl.config.players_schema import PlayersConfig
from icrl.config.training_schema import DQNConfig, NetworkConfig, OptimizerConfig, QLearningConfig, ReplayConfig
from icrl.contracts import EnvSpec, Rollout
from icrl.data.history_store import OBSERVATIONS, column_dtypes
from icrl.nn.cross import NUM_STREAMS
from icrl.nn.layers import read_net_arch
from icrl.nn.sizes import gpt_parameters, learner_parameters, net_parameters, values_parameters
from icrl.runs.intervals import interval_of
from icrl.runs.memory import Need, check_fits, check_memory, free_disk

if TYPE_CHECKING:
    from icrl.config.root import Config, ModelConfig

_INT = 8  # bytes of an int64
_FLOAT = 4


def check_stage_one(config: Config, spec: EnvSpec, num_tasks: int, device: torch.device) -> None:
    """Raise `ConfigError` where stage one, for `num_tasks` training tasks, needs more memory than `device` has, or its
    histories, if they are still to be made, more than the disk."""
    check_memory(config, stage_one(config, spec, num_tasks), device)
    folder = config.folder("histories")
    if not (folder / "manifest.json").exists():
        check_fits(config, [histories(config, spec, num_tasks)], free_disk(folder), f"disk for {folder}")


def histories(config: Config, spec: EnvSpec, num_tasks: int) -> Need:
    """On disk: every column of every recorded step."""
    source = config.source
    size = num_tasks * source.num_learners * source.history_steps * _recorded_bytes(spec)
    return Need("histories", size, ("tasks.num_train", "source.num_learners", "source.history_steps"))


def stage_one(
    config: Config, spec: EnvSpec, num_tasks: int, group: str = "source", *, recorded: bool = True
) -> list[Need]:
    """Learners, their streams, an unroll, what is kept to learn from and, if it is `recorded`, what waits to be
    written; `group` has the option `num_learners`."""
    source = config.source
    learners = num_tasks * source.num_learners
    streams, per_learner = learners * source.num_envs, f"{group}.num_learners"
    per_stream = (per_learner, "source.num_envs")
    needs = [
        Need("the streams", streams * 2 * _step_bytes(spec), per_stream),
        Need(
            "an unroll", streams * int(source.unroll_length) * _step_bytes(spec), (*per_stream, "source.unroll_length")
        ),
    ]
    if isinstance(source, QLearningConfig):
        size = learners * spec.num_obs * spec.num_actions * _FLOAT
        needs.append(Need("tables of values", size, (per_learner,)))
    if isinstance(source, NetworkConfig):
        outputs = spec.num_actions + (0 if isinstance(source, DQNConfig) else 1)
        copies = 5 if isinstance(source, DQNConfig) else 4  # parameters, gradients, two of Adam, and a target network
        size = learners * learner_parameters(spec, outputs, source.hidden_size) * copies * _FLOAT
        needs.append(Need("networks and Adam's state", size, (per_learner, "source.hidden_size")))
    if isinstance(source, ReplayConfig) and replays(source):
        size = streams * source.replay_buffer_length * _recorded_bytes(spec)
        needs.append(Need("what is kept to learn from", size, (*per_stream, "source.replay_buffer_length")))
        if draws(source):
            size = learners * source.mini_batch_size * window_length(source, 1) * _step_bytes(spec)
            needs.append(Need("a mini-batch", size, (per_learner, "source.mini_batch_size")))
    if recorded:
        checkpoints, iterations = config.checkpoints, num_iterations(source)
        between = interval_of(checkpoints.num_checkpoints, checkpoints.checkpoint_interval, iterations) or iterations
        waiting = min(int(between * source.unroll_length), unrolled(source, iterations))
        spacing = "checkpoints.num_checkpoints" if checkpoints.num_checkpoints else "checkpoints.checkpoint_interval"
        size = streams * waiting * _recorded_bytes(spec)
        needs.append(Need("what was played since the last checkpoint", size, (*per_stream, spacing)))
        if source.evaluate:
            needs.append(_evaluation_of_agents(config, spec, learners))
    return needs


def _evaluation_of_agents(config: Config, spec: EnvSpec, learners: int) -> Need:
    evals = config.evals
    played = _played(math.ceil(evals.num_eval_episodes / evals.num_eval_environments))
    size = learners * evals.num_eval_environments * played * _step_bytes(spec)
    options = ("source.num_learners", "evals.num_eval_environments", "evals.num_eval_episodes")
    return Need("an evaluation", size, options)


def fitting_gpt(config: Config, spec: EnvSpec, num_ranks: int, num_frozen: int = 0) -> list[Need]:
    """Training of a sequence model, beside `num_frozen` parameters of another that teaches it."""
    needs = _training(config, gpt_parameters(config.model, spec), num_frozen, "model", ("embed_dim", "ff_dim"))
    return [*needs, *_batches(config, config.model, spec, num_ranks, "model")]


def fitting_critic(config: Config, trunk: ModelConfig, spec: EnvSpec, num_ranks: int) -> list[Need]:
    """Training of a critic with trunks of the form `trunk`."""
    number = values_parameters(trunk, config.decoder, config.critic, spec)
    trains = number if config.critic.value_trunk_grad == "full" else 0
    heads = config.decoder.ff_dim > config.encoder.embed_dim
    group, widths = ("decoder", ("ff_dim",)) if heads else ("encoder", ("dimension", "ff_dim"))
    needs = _training(config, trains, 2 * number - trains, group, widths)
    needs += _batches(config, trunk, spec, num_ranks, "encoder") if trains else []
    decoder, kept = config.decoder, 2 * 2 * max(0, config.decoder.num_layers - 1)  # before and after an activation
    size = _windows(config, num_ranks) * _length(config) * kept * decoder.ff_dim * _activation_bytes(config)
    return [*needs, Need("activations of heads", size, ("trainer.mini_batch_size", "decoder.num_layers"))]


def _training(config: Config, trains: int, frozen: int, group: str, widths: tuple[str, ...]) -> list[Need]:
    """Parameters with their gradients and what the optimizer keeps of them."""
    size = (trains * (2 + _states(config.optimizer)) + frozen) * _element(config)
    options = tuple(f"{group}.{name}" for name in ("num_layers", *widths))
    return [Need("parameters, gradients and the optimizer's state", size, options)]


def _batches(config: Config, model: ModelConfig, spec: EnvSpec, num_ranks: int, group: str) -> list[Need]:
    """A batch, and what a backward pass reads of one part of it: in each block but the last, which may work on fewer
    tokens, the inputs of the norms and linear layers, queries, keys and values, and both sides of the activation."""
    steps, tokens = _windows(config, num_ranks) * _length(config), _tokens(model)
    width, of_block = model.embed_dim, 6 * model.embed_dim + 2 * model.ff_dim
    if config.trainer.activation_checkpointing:
        of_block = width
    batch = config.trainer.mini_batch_size // num_ranks * _length(config) * (_numbers(spec) + 4) * _INT
    activations = steps * tokens * (1 + (model.num_layers - 1) * of_block) * _activation_bytes(config)
    of_batch = ("trainer.mini_batch_size", "model.context_len")
    needs = [
        Need("a batch", batch, of_batch),
        Need("activations of a batch", activations, (*of_batch, f"{group}.num_layers")),
    ]
    if model.induction:  # a score for each pair of steps
        scores = steps * _length(config) * model.num_heads * _FLOAT
        needs.append(Need("attention to earlier visits", scores, (*of_batch, f"{group}.num_heads")))
    return needs


def playing(
    config: Config,
    model: ModelConfig,
    spec: EnvSpec,
    num_streams: int,
    num_episodes: int,
    device: torch.device,
    options: tuple[str, ...],
) -> list[Need]:
    """A `model` in context: its cache, its window, and all that is played. `options` decide on streams and episodes."""
    played = _played(num_episodes)
    held = model.context_len if device.type == "cuda" else min(model.context_len, played)
    cache = 2 * model.num_layers * num_streams * held * _tokens(model) * model.embed_dim * _element(config)
    window = num_streams * held * (_numbers(spec) + 3) * _INT
    transitions = num_streams * played * _step_bytes(spec)
    return [
        Need("keys and values of the context", cache, (*options, "model.context_len", "model.num_layers")),
        Need("the context", window, (*options, "model.context_len")),
        Need("what is played", transitions, options),
    ]


def evaluation_amid(
    config: Config, model: ModelConfig, spec: EnvSpec, num_tasks: int, device: torch.device
) -> list[Need]:
    """`playing` of `num_tasks` tasks amid training."""
    evals = config.evals
    episodes = math.ceil(evals.num_eval_episodes / evals.num_eval_environments)
    options = ("evals.num_eval_environments", "evals.num_eval_episodes")
    return playing(config, model, spec, num_tasks * evals.num_eval_environments, episodes, device, options)


def bootstrap(config: Config, num_tasks: int) -> Need:
    """How often each task is drawn, and the mean of each episode, in every resample."""
    options = config.evaluation
    size = options.num_bootstrap * (num_tasks + options.num_episodes) * _INT
    return Need("the resamples of an interval", size, ("evaluation.num_bootstrap", "evaluation.num_episodes"))


def players(config: PlayersConfig) -> list[Need]:
    """Training of host and agent, and the matches between them."""
    game, element = config.game, torch.finfo(getattr(torch, config.device.dtype)).bits // 8
    position = game.max_num_points * game.dimension
    needs: list[Need] = []
    for name in config.learning:
        role, is_host = config.roles[name], name == "host"
        others = 0 if is_host else game.dimension
        actions = 2**game.dimension - game.dimension - 1 if is_host else game.dimension
        layers = read_net_arch(f"{name}.net_arch", role.net_arch)
        number = net_parameters(position + game.max_num_points + others, actions, layers)
        states = (2 if role.optimizer == "adam" else int(role.momentum > 0)) + 3  # gradients, and a target network
        seen, width = position + others, sum(layer.width for layer in layers)
        games = config.training.num_games
        needs += [
            Need("networks and the optimizer's state", number * states * element, (f"{name}.net_arch",)),
            Need("a batch", role.batch_size * (2 * seen + width) * element, (f"{name}.batch_size", f"{name}.net_arch")),
            Need("transitions", config.replay.size * 2 * seen * element, ("replay.size", "game.max_num_points")),
            Need(
                "a rollout",
                games * role.initial_rollout_length * 2 * position * _INT,
                ("training.num_games", "game.max_num_points"),
            ),
        ]
    matched = max(config.evaluation.num_games, config.evaluation.num_final_games)
    most = "num_games" if matched == config.evaluation.num_games else "num_final_games"
    options = (f"evaluation.{most}", "game.max_num_points")
    return [*needs, Need("the positions of a match", matched * position * _INT, options)]


def _numbers(spec: EnvSpec) -> int:
    """K."""
    return math.prod(spec.obs_shape)


def _step_bytes(spec: EnvSpec) -> int:
    """Of a transition as it is played: two observations, four other numbers, two ends."""
    return (2 * _numbers(spec) + 4) * _INT + 2


def _recorded_bytes(spec: EnvSpec) -> int:
    """Of a transition in the dtypes of histories."""
    sizes = {name: np.dtype(dtype).itemsize for name, dtype in column_dtypes(spec).items()}
    return sum(sizes[name] * (_numbers(spec) if name in OBSERVATIONS else 1) for name in Rollout._fields)


def _played(num_episodes: int) -> int:
    """Env steps of a stream until it has played so many episodes, of at least a step each."""
    return -(-num_episodes // BLOCK) * BLOCK


def _tokens(model: ModelConfig) -> int:
    """Of a step."""
    return 1 if model.tokens == "transition" else NUM_STREAMS


def _length(config: Config) -> int:
    return config.trainer.mini_batch_length or config.model.context_len


def _windows(config: Config, num_ranks: int) -> int:
    """That one backward pass goes through."""
    return config.trainer.mini_batch_size // (config.trainer.gradient_accumulation_steps * num_ranks)


def _element(config: Config) -> int:
    return torch.finfo(getattr(torch, config.device.dtype)).bits // 8


def _activation_bytes(config: Config) -> int:
    return _element(config) if config.device.amp_dtype == "none" else 2


def _states(optimizer: OptimizerConfig) -> int:
    """Numbers that are kept for each parameter."""
    return int(optimizer.momentum > 0) if optimizer.name == "sgd" else 2
