"""Rules across groups of options. Each message names both fields: `{key}` stands for key=value."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING

from icrl.contracts import ConfigError
from icrl.point_game.world import PointGameConfig

if TYPE_CHECKING:
    from icrl.config.root import Config

READS_POINTS = ("a2c", "ppo", "random")  # sources that read observations of many numbers


def check_rules(config: Config) -> None:
    """Raise `ConfigError` at the first conflict between groups."""

    def shown(key: re.Match[str]) -> str:
        value = attrgetter(key[1])(config)
        return f"{key[1]}={str(value).lower() if isinstance(value, bool) else value}"

    for conflicts in (_in_world, _in_tasks, _in_lengths, _in_model, _in_training, _in_starts):
        for message in conflicts(config):
            raise ConfigError(re.sub(r"\{([\w.]+)\}", shown, message))


def _in_world(config: Config) -> Iterator[str]:
    if isinstance(config.env, PointGameConfig):
        if config.source.name not in READS_POINTS:
            yield f"{{source.name}} must be {', '.join(READS_POINTS)} with {{env.name}}: the others read no point sets"
        for key, needed, reason in (
            ("source.vectorization", "tensor", "the games are played side by side"),
            ("source.videos_per_task", 0, "there is no room to film"),
            ("evaluation.videos", False, "there is no room to film"),
            ("model.induction", False, "no position is seen twice"),
            ("objective.name", "ad", "nobody knows what is optimal"),
        ):
            if attrgetter(key)(config) != needed:
                yield f"{{{key}}} does not fit {{env.name}}: must be {str(needed).lower()}, {reason}"
    if max(config.search.goal_row, config.search.goal_column) >= getattr(config.env, "size", math.inf):
        yield "{search.goal_row} and {search.goal_column} must be below {env.size}"
    for key in ("source.evaluate", "summaries.action_distributions", "summaries.outputs"):
        if config.source.name == "searcher" and attrgetter(key)(config):
            yield f"{{{key}}} evaluates without the past, but {{source.name}} acts on it alone; give false"


def _in_tasks(config: Config) -> Iterator[str]:
    number = config.data.num_development_tasks
    if 0 < config.tasks.num_train <= number:
        yield "{data.num_development_tasks} must be below {tasks.num_train}"
    if config.trainer.evaluate and not number:
        yield "{trainer.evaluate} needs {data.num_development_tasks} above 0; the other way is trainer.evaluate=false"
    if config.evaluation.tasks == "development" and not number:
        yield "{evaluation.tasks} plays the tasks set aside by {data.num_development_tasks}: raise it"
    if not config.trainer.evaluate and config.evaluation.checkpoint == "best":
        yield "{trainer.evaluate} saves no best checkpoint; give evaluation.checkpoint=last"


def _in_lengths(config: Config) -> Iterator[str]:
    """Conflicts of lengths: histories must be long enough for their use. Those of a mixture are in its stores."""
    names, data, source, length = config.histories, config.data, config.source, config.model.context_len
    if len(set(names)) < max(len(names), 1):
        yield "{histories}: must be one name, or several that differ"
    if data.weights and len(data.weights) != len(names):
        yield "{data.weights} must have one weight for each of {histories}, or be empty"
    if 0 < data.kept_steps < length:
        yield "{data.kept_steps} is less than {model.context_len}"
    if len(names) > 1:
        return
    if data.history_len > source.history_steps:
        yield "{data.history_len} is more than {source.history_steps}"
    if length > (row_len := (data.history_len or source.history_steps) // source.num_envs):
        yield (
            f"{{model.context_len}} is longer than a history: {row_len} steps per row, from {{data.history_len}} or "
            "{source.history_steps}, and {source.num_envs}. Lower it, or collect longer histories"
        )
    needed, steps = (config.evaluation.num_episodes + 1) * config.env.max_episode_steps, source.history_steps
    if needed > steps // source.num_envs:
        yield (
            f"{{evaluation.num_episodes}} needs {needed} steps per row for the episodes of the source, but "
            f"{{source.history_steps}} gives {steps // source.num_envs}"
        )


def _in_model(config: Config) -> Iterator[str]:
    model, encoder, length = config.model, config.encoder, config.trainer.mini_batch_length
    side = "size" if hasattr(config.env, "size") else "width"
    if model.obs_encoding != "cell" and model.max_size < getattr(config.env, side, 0):
        yield f"{{model.max_size}} must be at least {{env.{side}}} with {{model.obs_encoding}}"
    if length > model.context_len:
        yield "{trainer.mini_batch_length} is longer than {model.context_len}"
    for group in (model, encoder):
        if group.position == "learned" and 0 < length < model.context_len:
            key = "model.position" if group is model else "encoder.position"
            yield f"{{trainer.mini_batch_length}} leaves positions untrained with {{{key}}} and {{model.context_len}}"
    if encoder.position == "env_time" and not model.add_env_time:
        yield "{encoder.position} is the env time embedding, which {model.add_env_time} leaves out"


def _in_training(config: Config) -> Iterator[str]:
    trainer, device, policy = config.trainer, config.device, config.policy
    if config.optimizer.name == "mtadam" and device.amp_dtype == "float16":
        yield "{optimizer.name} undoes the loss scaling of {device.amp_dtype}: give device.amp_dtype=bfloat16 or none"
    if trainer.empty_cache and device.type == "cpu":
        yield "{trainer.empty_cache}: {device.type} has no cache to empty"
    if config.summaries.gradient_noise_scale != "none" and trainer.mini_batch_size < 2:
        yield "{summaries.gradient_noise_scale} needs parts of a batch; {trainer.mini_batch_size} must be at least 2"
    if config.awr.normalize != "none" and trainer.gradient_accumulation_steps > 1:
        yield "{awr.normalize} needs whole batches: {trainer.gradient_accumulation_steps} must be 1, or give none"
    if policy.model not in ("gpt", "critic", config.awr.experiment_name):
        yield "{policy.model}: must be gpt, critic or {awr.experiment_name}"
    if policy.model == "critic" and not policy.advantage_scale:
        yield "{policy.model} acts on the critic alone, so {policy.advantage_scale} must be above 0"


def _in_starts(config: Config) -> Iterator[str]:
    """Conflicts of trained models: each part of a critic is initialized from at most one."""
    critic, alone = config.critic, config.critic.initial_model_prefix == "none"
    parts = ("encoder.load_from", "decoder.load_from", "critic.initial_model")
    whole = [("critic.initial_model", part) for part in parts[:2]]
    for pair in (*whole, *(("critic.initial_model_prefix", part) for part in parts)):
        if "none" not in attrgetter(*pair)(config):
            yield f"{{{pair[0]}}} already includes {{{pair[1]}}}: one of them must be none"
    if alone and critic.initial_model_index >= 0:
        yield "{critic.initial_model_index} needs critic.initial_model_prefix"
    if alone and config.optimizer.initialize:
        yield "{optimizer.initialize} applies to the state in critic.initial_model_prefix, which is none"
    fixed = critic.value_trunk_grad == "none" and (critic.separate_value or not critic.imitation_scaling)
    if fixed and alone and config.encoder.load_from == critic.initial_model == "none":
        yield (
            "{critic.value_trunk_grad} with {critic.imitation_scaling} and {critic.separate_value} leaves a trunk that "
            "nothing trains; give a trained one by encoder.load_from"
        )
