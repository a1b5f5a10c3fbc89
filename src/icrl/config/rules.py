"""Rules across groups of options. Each message names both fields."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from icrl.config.options import refuse
from icrl.point_game.world import PointGameConfig

if TYPE_CHECKING:
    from icrl.config.root import Config

READS_POINTS = ("a2c", "ppo", "random")  # sources that read observations of many numbers


def check_rules(config: Config) -> None:
    """Raise `ConfigError` at the first conflict between groups."""
    _check_world(config)
    _check_source(config)
    _check_development_tasks(config)
    _check_lengths(config)
    _check_model(config)
    _check_training(config)
    _check_starts(config)
    _check_policy(config)


def _check_world(config: Config) -> None:
    source = config.source
    if isinstance(config.env, PointGameConfig):
        refuse(
            source.name not in READS_POINTS,
            f"source.name={source.name} reads observations that are one number; env.name=point_game shows point sets, "
            f"which {', '.join(READS_POINTS)} read",
        )
        for key, value, needed, reason in (
            ("source.vectorization", source.vectorization, "tensor", "the games are played side by side"),
            ("source.videos_per_task", source.videos_per_task, 0, "there is no room to film"),
            ("evaluation.videos", config.evaluation.videos, False, "there is no room to film"),
            ("model.induction", config.model.induction, False, "no position is seen twice"),
            ("objective.name", config.objective.name, "ad", "nobody knows what is optimal"),
        ):
            refuse(value != needed, f"{key}={value} does not fit env.name=point_game: must be {needed}, {reason}")
    search, size = config.search, getattr(config.env, "size", math.inf)
    refuse(
        max(search.goal_row, search.goal_column) >= size,
        f"search.goal_row={search.goal_row} and search.goal_column={search.goal_column} must be below env.size={size}",
    )


def _check_source(config: Config) -> None:
    """Refuse to evaluate a source without its past if it acts on its past."""
    shown = {
        "source.evaluate": config.source.evaluate,
        "summaries.action_distributions": config.summaries.action_distributions,
        "summaries.outputs": config.summaries.outputs,
    }
    for name, on in shown.items():
        refuse(
            config.source.name == "searcher" and on,
            f"{name}=true evaluates without the past, but source.name=searcher acts on it alone; give false",
        )


def _check_development_tasks(config: Config) -> None:
    number, tasks = config.data.num_development_tasks, config.tasks
    refuse(
        0 < tasks.num_train <= number,
        f"data.num_development_tasks={number} must be below tasks.num_train={tasks.num_train}",
    )
    refuse(
        config.trainer.evaluate and not number,
        "trainer.evaluate=true plays development tasks during training, but data.num_development_tasks=0 sets none "
        "aside: raise it, or give trainer.evaluate=false and evaluation.checkpoint=last",
    )
    refuse(
        config.evaluation.tasks == "development" and not number,
        "evaluation.tasks=development plays the tasks set aside by data.num_development_tasks, which is 0: raise it",
    )


def _check_lengths(config: Config) -> None:
    """Check that histories are long enough for their use. The lengths of a mixture are in its stores."""
    names, data, source, model = config.histories, config.data, config.source, config.model
    refuse(len(set(names)) < max(len(names), 1), f"histories={names}: must be one name, or several that differ")
    refuse(
        data.weights and len(data.weights) != len(names),
        f"data.weights={data.weights} must have one weight for each of histories={names}, or be empty",
    )
    refuse(
        0 < data.kept_steps < model.context_len,
        f"data.kept_steps={data.kept_steps} is less than model.context_len={model.context_len}",
    )
    if len(names) > 1:
        return
    refuse(
        data.history_len > source.history_steps,
        f"data.history_len={data.history_len} is more than source.history_steps={source.history_steps}",
    )
    row_len = (data.history_len or source.history_steps) // source.num_envs
    refuse(
        model.context_len > row_len,
        f"model.context_len={model.context_len} is longer than a history: {row_len} steps per row, from "
        f"data.history_len={data.history_len} or source.history_steps={source.history_steps}, "
        f"and source.num_envs={source.num_envs}. Lower it, or collect longer histories",
    )
    needed = (config.evaluation.num_episodes + 1) * config.env.max_episode_steps
    refuse(
        needed > source.history_steps // source.num_envs,
        f"evaluation.num_episodes={config.evaluation.num_episodes} needs {needed} steps per row for the episodes of "
        f"the source, but source.history_steps={source.history_steps} gives {source.history_steps // source.num_envs}",
    )


def _check_model(config: Config) -> None:
    model, encoder, length = config.model, config.encoder, config.trainer.mini_batch_length
    side = "size" if hasattr(config.env, "size") else "width"
    cells = getattr(config.env, side, 0)
    refuse(
        model.obs_encoding != "cell" and model.max_size < cells,
        f"model.max_size={model.max_size} must be at least env.{side}={cells} with "
        f"model.obs_encoding={model.obs_encoding}",
    )
    refuse(
        length > model.context_len,
        f"trainer.mini_batch_length={length} is longer than model.context_len={model.context_len}",
    )
    for group, position in (("model", model.position), ("encoder", encoder.position)):
        refuse(
            position == "learned" and 0 < length < model.context_len,
            f"trainer.mini_batch_length={length} leaves positions untrained with {group}.position=learned and "
            f"model.context_len={model.context_len}",
        )
    refuse(
        encoder.position == "env_time" and not model.add_env_time,
        "encoder.position=env_time is the env time embedding, which model.add_env_time=false leaves out",
    )


def _check_training(config: Config) -> None:
    trainer, device, summaries = config.trainer, config.device, config.summaries
    refuse(
        config.optimizer.name == "mtadam" and device.amp_dtype == "float16",
        "optimizer.name=mtadam normalises gradients itself, so the loss scaler of device.amp_dtype=float16 "
        "has no effect; give device.amp_dtype=bfloat16 or none",
    )
    refuse(
        not trainer.evaluate and config.evaluation.checkpoint == "best",
        "trainer.evaluate=false saves no best checkpoint; give evaluation.checkpoint=last",
    )
    refuse(
        trainer.empty_cache and device.type == "cpu",
        "trainer.empty_cache=true: device.type=cpu has no cache to empty",
    )
    refuse(
        summaries.gradient_noise_scale != "none" and trainer.mini_batch_size < 2,
        f"summaries.gradient_noise_scale={summaries.gradient_noise_scale} needs parts of a batch; "
        f"trainer.mini_batch_size={trainer.mini_batch_size} must be at least 2",
    )
    parts = trainer.gradient_accumulation_steps
    refuse(
        config.awr.normalize != "none" and parts > 1,
        f"awr.normalize={config.awr.normalize} needs the whole batch at once, but trainer.gradient_accumulation_steps="
        f"{parts} splits it; give 1, or awr.normalize=none",
    )


def _check_starts(config: Config) -> None:
    """Check that each part of a critic is initialized from at most one model."""
    critic, encoder = config.critic, config.encoder
    model, prefix = critic.initial_model, critic.initial_model_prefix
    starts = {"encoder.load_from": encoder.load_from, "decoder.load_from": config.decoder.load_from}
    for name, path in starts.items():
        refuse(
            path != "none" and model != "none",
            f"critic.initial_model={model} already includes {name}={path}: one of them must be none",
        )
    for name, path in (starts | {"critic.initial_model": model}).items():
        refuse(
            path != "none" and prefix != "none",
            f"critic.initial_model_prefix={prefix} already includes {name}={path}: one of them must be none",
        )
    refuse(
        critic.initial_model_index >= 0 and prefix == "none",
        f"critic.initial_model_index={critic.initial_model_index} needs critic.initial_model_prefix",
    )
    refuse(
        config.optimizer.initialize and prefix == "none",
        "optimizer.initialize=true applies to the state in critic.initial_model_prefix, which is none",
    )
    fixed = critic.value_trunk_grad == "none" and (critic.separate_value or not critic.imitation_scaling)
    refuse(
        fixed and encoder.load_from == model == prefix == "none",
        f"critic.value_trunk_grad=none with critic.imitation_scaling={critic.imitation_scaling} and "
        f"critic.separate_value={str(critic.separate_value).lower()} leaves a trunk that nothing trains; give a "
        "trained one by encoder.load_from",
    )


def _check_policy(config: Config) -> None:
    policy, extracted = config.policy, config.awr.experiment_name
    refuse(
        policy.model not in ("gpt", "critic", extracted),
        f"policy.model={policy.model}: must be gpt, critic or awr.experiment_name={extracted}",
    )
    refuse(
        policy.model == "critic" and not policy.advantage_scale,
        "policy.model=critic acts on the critic alone, so policy.advantage_scale=0 must be above 0",
    )
