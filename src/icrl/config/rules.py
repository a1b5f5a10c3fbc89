"""Options that are fine alone and not together. Each message names both fields."""

import math
from typing import TYPE_CHECKING

from icrl.collection.pace import env_steps
from icrl.config.offline_conflicts import of_critic, of_decoder, of_encoder, of_extraction, of_start
from icrl.config.source_conflicts import Conflicts, of_memory, of_mini_batches, of_pace, of_replay
from icrl.config.training_conflicts import of_device, of_optimizer, of_trainer
from icrl.config.world_conflicts import of_bandit, of_point_game
from icrl.contracts import ConfigError

if TYPE_CHECKING:
    from icrl.config.root import Config


LEAST_TEMPERATURE = 0.001  # what is colder overflows, and is greedy


def check_conflicts(config: "Config") -> None:
    """Raise `ConfigError` at the first conflict there is."""
    for broken, message in (
        *of_bandit(config),
        *of_point_game(config),
        *of_pace(config),
        *of_memory(config),
        *of_mini_batches(config),
        *of_replay(config),
        *_of_source(config),
        *_of_tasks(config),
        *_of_data(config),
        *_of_model(config),
        *of_optimizer(config),
        *of_trainer(config),
        *of_device(config.device),
        *_of_services(config),
        *_of_evaluation(config),
        *of_critic(config),
        *of_start(config),
        *of_encoder(config),
        *of_decoder(config),
        *of_extraction(config),
    ):
        if broken:
            raise ConfigError(message)


def _of_source(config: "Config") -> Conflicts:
    source, search, size = config.source, config.search, getattr(config.env, "size", math.inf)
    made, recorded = env_steps(source), source.history_steps
    return [
        (recorded > made, f"source.history_steps={recorded} is more than source.num_env_steps={made}"),
        (
            recorded % source.num_envs != 0,
            f"source.history_steps={recorded} must be a multiple of source.num_envs={source.num_envs}",
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
    ]


def _of_tasks(config: "Config") -> Conflicts:
    tasks, number = config.tasks, config.data.num_development_tasks
    listed = tasks.split == "list"
    return [
        (tasks.num_train == 1, "tasks.num_train=1: must be at least 2, or 0 for all tasks that are not held out"),
        (
            tasks.split == "random" and not tasks.num_train and not tasks.num_held_out,
            "tasks.num_train=0 and tasks.num_held_out=0: tasks.split=random needs the number of one of them",
        ),
        (
            listed and not tasks.held_out,
            "tasks.split=list holds out the tasks numbered in tasks.held_out, which is []: must have at least one",
        ),
        (
            bool(tasks.held_out) and not listed,
            f"tasks.held_out={tasks.held_out} is for tasks.split=list, and this is tasks.split={tasks.split}",
        ),
        (
            len(set(tasks.held_out)) < len(tasks.held_out),
            f"tasks.held_out={tasks.held_out}: no task may be there twice",
        ),
        (
            0 < tasks.num_train <= number,
            f"data.num_development_tasks={number} must be below tasks.num_train={tasks.num_train}",
        ),
        (
            config.trainer.evaluate and not number,
            "trainer.evaluate=true plays development tasks amid training, and data.num_development_tasks=0 sets none "
            "aside: set some aside, or give trainer.evaluate=false and evaluation.checkpoint=last",
        ),
        (
            config.evaluation.tasks == "development" and not number,
            "evaluation.tasks=development plays the tasks that data.num_development_tasks set aside, and it is 0",
        ),
    ]


def _of_data(config: "Config") -> Conflicts:
    names, data, source = config.histories, config.data, config.source
    row_len = (data.history_len or source.history_steps) // source.num_envs
    from_source = len(names) == 1  # those of a mixture say themselves how long they are
    return [
        (len(set(names)) < max(len(names), 1), f"histories={names}: must be one name, or several that differ"),
        (
            bool(data.weights) and len(data.weights) != len(names),
            f"data.weights={data.weights} must be as many as histories={names}, or none",
        ),
        (
            from_source and data.history_len > source.history_steps,
            f"data.history_len={data.history_len} is more than source.history_steps={source.history_steps}",
        ),
        (
            from_source and config.model.context_len > row_len,
            f"model.context_len={config.model.context_len} is longer than a history: {row_len} steps a row, from "
            f"data.history_len={data.history_len} or source.history_steps={source.history_steps}, "
            f"and source.num_envs={source.num_envs}",
        ),
        (not data.keep_every, "data.keep_every=[] keeps nothing: must have at least one number"),
        (
            len(set(data.keep_every)) < len(data.keep_every),
            f"data.keep_every={data.keep_every}: no number may be there twice",
        ),
        (
            0 < data.kept_steps < config.model.context_len,
            f"data.kept_steps={data.kept_steps} is less than model.context_len={config.model.context_len}",
        ),
    ]


def _of_model(config: "Config") -> Conflicts:
    model = config.model
    side = "size" if hasattr(config.env, "size") else "width"
    cells = getattr(config.env, side, 0)
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
            model.obs_encoding != "cell" and model.max_size < cells,
            f"model.max_size={model.max_size} must be at least env.{side}={cells} with "
            f"model.obs_encoding={model.obs_encoding}",
        ),
    ]


def _of_services(config: "Config") -> Conflicts:
    evals, checkpoints, summaries = config.evals, config.checkpoints, config.summaries
    spaced = [
        ("evals.num_evals", evals.num_evals, "evals.eval_interval", evals.eval_interval),
        (
            "checkpoints.num_checkpoints",
            checkpoints.num_checkpoints,
            "checkpoints.checkpoint_interval",
            checkpoints.checkpoint_interval,
        ),
        (
            "summaries.num_summaries",
            summaries.num_summaries,
            "summaries.summary_interval",
            summaries.summary_interval,
        ),
    ]
    silent = not summaries.num_summaries and not summaries.summary_interval
    shown = {
        "summarize_first_interval": summaries.summarize_first_interval,
        "grads_and_vars": summaries.grads_and_vars,
        "gradient_noise_scale": summaries.gradient_noise_scale != "none",
        "action_distributions": summaries.action_distributions,
        "outputs": summaries.outputs,
        "debug": summaries.debug,
    }
    return [
        *(
            (bool(number and interval), f"{first}={number} and {second}={interval}: one of them must be 0")
            for first, number, second, interval in spaced
        ),
        *(
            (
                on and silent,
                f"summaries.{name}={getattr(summaries, name)} shows nothing with summaries.num_summaries=0 and "
                "summaries.summary_interval=0",
            )
            for name, on in shown.items()
        ),
        (
            evals.num_eval_environments > evals.num_eval_episodes,
            f"evals.num_eval_environments={evals.num_eval_environments} is more than "
            f"evals.num_eval_episodes={evals.num_eval_episodes}",
        ),
        (
            summaries.gradient_noise_scale != "none" and config.trainer.mini_batch_size < 2,
            f"summaries.gradient_noise_scale={summaries.gradient_noise_scale} needs parts of a batch; "
            f"trainer.mini_batch_size={config.trainer.mini_batch_size}",
        ),
    ]


def _of_evaluation(config: "Config") -> Conflicts:
    evaluation, source, limit = config.evaluation, config.source, config.env.max_episode_steps
    tiny = [temperature for temperature in evaluation.temperatures if 0 < temperature < LEAST_TEMPERATURE]
    row_len, needed = source.history_steps // source.num_envs, (evaluation.num_episodes + 1) * limit
    from_source = len(config.histories) == 1
    return [
        (
            bool(tiny),
            f"evaluation.temperatures={evaluation.temperatures}: must be 0 or at least {LEAST_TEMPERATURE}",
        ),
        (
            len(set(evaluation.temperatures)) < len(evaluation.temperatures),
            f"evaluation.temperatures={evaluation.temperatures}: no number may be there twice",
        ),
        (
            from_source and needed > row_len,
            f"evaluation.num_episodes={evaluation.num_episodes} needs {needed} steps a row, for as many episodes "
            f"of the source; source.history_steps={source.history_steps} gives {row_len}",
        ),
    ]
