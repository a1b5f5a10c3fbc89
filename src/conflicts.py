"""Options that are fine alone and not together. Each message names both fields."""

from typing import TYPE_CHECKING

from src.contracts import ConfigError

if TYPE_CHECKING:
    from src.config import Config

Conflicts = list[tuple[bool, str]]  # whether a configuration has it, and what to say then


def check_conflicts(config: "Config") -> None:
    """Raise `ConfigError` at the first conflict there is."""
    for broken, message in (*_of_source(config), *_of_model(config), *_of_evaluation(config)):
        if broken:
            raise ConfigError(message)


def _of_source(config: "Config") -> Conflicts:
    source, search, size = config.source, config.search, config.env.size
    steps, recorded, envs = source.num_env_steps, source.history_steps, source.num_envs
    block = envs * source.rollout_len
    return [
        (
            steps % block != 0,
            f"source.num_env_steps={steps} must be a multiple of source.num_envs x source.rollout_len = {block}",
        ),
        (recorded > steps, f"source.history_steps={recorded} is more than source.num_env_steps={steps}"),
        (
            recorded % block != 0,
            f"source.history_steps={recorded} must be a multiple of source.num_envs x source.rollout_len = {block}",
        ),
        (
            source.checkpoint_interval % source.rollout_len != 0,
            f"source.checkpoint_interval={source.checkpoint_interval} must be a multiple of "
            f"source.rollout_len={source.rollout_len}",
        ),
        (
            source.videos_per_task > source.num_learners,
            f"source.videos_per_task={source.videos_per_task} is more than source.num_learners={source.num_learners}",
        ),
        (
            max(search.goal_row, search.goal_column) >= size,
            f"search.goal_row={search.goal_row} and search.goal_column={search.goal_column} "
            f"must be below env.size={size}",
        ),
        (
            search.num_env_steps % block != 0,
            f"search.num_env_steps={search.num_env_steps} must be a multiple of "
            f"source.num_envs x source.rollout_len = {block}",
        ),
    ]


def _of_model(config: "Config") -> Conflicts:
    model, data, optimizer, source = config.model, config.data, config.optimizer, config.source
    row_len = (data.history_len or source.history_steps) // source.num_envs
    return [
        (
            model.embed_dim % model.num_heads != 0,
            f"model.num_heads={model.num_heads} must divide model.embed_dim={model.embed_dim}",
        ),
        (
            model.position == "rope" and model.embed_dim // model.num_heads % 2 == 1,
            f"model.position=rope needs an even model.embed_dim / model.num_heads, "
            f"not {model.embed_dim} / {model.num_heads}",
        ),
        (
            model.position == "env_time" and not model.add_env_time,
            "model.position=env_time is the env time embedding, which model.add_env_time=false leaves out",
        ),
        (
            model.obs_encoding == "coordinates" and model.max_size < config.env.size,
            f"model.max_size={model.max_size} must be at least env.size={config.env.size} "
            "with model.obs_encoding=coordinates",
        ),
        (
            data.history_len > source.history_steps,
            f"data.history_len={data.history_len} is more than source.history_steps={source.history_steps}",
        ),
        (
            model.context_len > row_len,
            f"model.context_len={model.context_len} is longer than a history: {row_len} steps a row, from "
            f"data.history_len={data.history_len} or source.history_steps={source.history_steps}, "
            f"and source.num_envs={source.num_envs}",
        ),
        (
            data.num_validation_tasks >= config.tasks.num_train,
            f"data.num_validation_tasks={data.num_validation_tasks} must be below "
            f"tasks.num_train={config.tasks.num_train}",
        ),
        (
            optimizer.name == "adam" and optimizer.weight_decay > 0,
            f"optimizer.weight_decay={optimizer.weight_decay} needs optimizer.name=adamw, not adam",
        ),
        (
            optimizer.final_learning_rate > optimizer.learning_rate,
            f"optimizer.final_learning_rate={optimizer.final_learning_rate} is above "
            f"optimizer.learning_rate={optimizer.learning_rate}",
        ),
    ]


def _of_evaluation(config: "Config") -> Conflicts:
    trainer, evaluation, source, limit = config.trainer, config.evaluation, config.source, config.env.max_episode_steps
    row_len, needed = source.history_steps // source.num_envs, (evaluation.num_episodes + 1) * limit
    return [
        (
            trainer.evaluation_steps < limit,
            f"trainer.evaluation_steps={trainer.evaluation_steps} must be at least env.max_episode_steps={limit}, "
            "so that an episode can end",
        ),
        (
            needed > row_len,
            f"evaluation.num_episodes={evaluation.num_episodes} needs {needed} steps a row, for as many episodes "
            f"of the source; source.history_steps={source.history_steps} gives {row_len}",
        ),
    ]
