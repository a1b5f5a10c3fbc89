"""Rules among the options of a source: the pace of stage one, and what is learned from."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from icrl.config.options import refuse
from icrl.sources.pace import env_steps

if TYPE_CHECKING:
    from icrl.sources.options import ReplayConfig, SourceConfig

ON_POLICY = ("a2c", "ppo")
LEARN_NOTHING = ("noise_distillation", "searcher", "optimal", "random")
_WITHOUT_LEARNING = {  # options that only learners use, and their value for others
    "async_unroll": False,
    "initial_collect_steps": 0,
    "num_updates_per_train_iter": 1,
    "mini_batch_length": 0,
    "mini_batch_size": 0,
}
_WITHOUT_OFFLINE = {  # options about histories of other learners, and their value where there are none
    "offline_buffer_length": 0,
    "offline_buffer_range": "first",
    "offline_buffer_every": 1,
    "offline_loss_weight": 1.0,
    "rl_train_after_update_steps": 0,
    "rl_train_every_update_steps": 1,
}


def check_source(source: SourceConfig) -> None:
    """Raise `ConfigError` at the first conflict among the options of `source`."""
    _check_pace(source)
    _check_kind(source)
    _check_recording(source)
    if hasattr(source, "replay_buffer_length"):
        _check_replay(cast("ReplayConfig", source))
    if not source.replays:
        _check_mini_batches(source)


def _check_pace(source: SourceConfig) -> None:
    steps, asked, unroll, envs = source.num_env_steps, source.num_iterations, source.unroll_length, source.num_envs
    refuse(
        not steps and not asked,
        "source.num_iterations=0 and source.num_env_steps=0: one of them must be above 0",
    )
    made = env_steps(source)
    refuse(
        not made,
        f"source.num_iterations={asked} leaves no env steps after source.rl_train_after_update_steps="
        f"{getattr(source, 'rl_train_after_update_steps', 0)} iterations without any",
    )
    refuse(
        steps and made != steps and not asked,
        f"source.num_env_steps={steps} must be a multiple of source.num_envs x source.unroll_length = "
        f"{envs * unroll:g}; the next is {made}",
    )
    refuse(
        steps and asked and made != steps,
        f"source.num_iterations={asked} make {made} env steps, with source.num_envs={envs} and "
        f"source.unroll_length={unroll:g}, and source.num_env_steps={steps}: every iteration plays, "
        f"so both must agree; give source.num_env_steps={made} or 0 too",
    )
    refuse(
        source.initial_collect_steps >= made,
        f"source.initial_collect_steps={source.initial_collect_steps} leaves no steps for training: "
        f"source.num_env_steps is {made}",
    )


def _check_kind(source: SourceConfig) -> None:
    name, unroll = source.name, source.unroll_length
    refuse(
        name in ON_POLICY and unroll != int(unroll),
        f"source.unroll_length={unroll}: source.name={name} learns on-policy, so it must be a whole number",
    )
    refuse(
        name in ON_POLICY and source.async_unroll,
        f"source.async_unroll=true plays with an older policy, but source.name={name} learns on-policy: must be false",
    )
    teacher, best = getattr(source, "teacher", "none"), getattr(source, "max_performance", 1)
    refuse(
        teacher != "none" and best < 1,
        f"source.max_performance={best} limits the noisy planner, but source.teacher={teacher} replaces it: give "
        "source.max_performance=1",
    )
    refuse(
        source.unroll_step_interval > 0 and not source.async_unroll,
        f"source.unroll_step_interval={source.unroll_step_interval} needs source.async_unroll=true",
    )
    refuse(
        source.num_workers > 0 and source.vectorization == "tensor",
        f"source.num_workers={source.num_workers} needs source.vectorization=process: tensors have no workers",
    )
    for option, idle in _WITHOUT_LEARNING.items():
        refuse(
            name in LEARN_NOTHING and getattr(source, option) != idle,
            f"source.{option}={getattr(source, option)} has no effect: source.name={name} learns nothing",
        )


def _check_recording(source: SourceConfig) -> None:
    recorded, made = source.history_steps, env_steps(source)
    refuse(recorded > made, f"source.history_steps={recorded} is more than source.num_env_steps={made}")
    refuse(
        recorded % source.num_envs != 0,
        f"source.history_steps={recorded} must be a multiple of source.num_envs={source.num_envs}",
    )
    refuse(
        source.videos_per_task > source.num_learners,
        f"source.videos_per_task={source.videos_per_task} is more than source.num_learners={source.num_learners}",
    )


def _check_mini_batches(source: SourceConfig) -> None:
    """Check how an unroll is cut up, where the newest alone is learned from."""
    size, length, unroll, envs = source.mini_batch_size, source.mini_batch_length, source.unroll_length, source.num_envs
    whole = unroll == int(unroll)  # else the number of windows changes, and with it what divides all of them
    windows = envs * (int(unroll) // length if length and whole else 1)
    refuse(
        length > 1 and unroll % length != 0,
        f"source.mini_batch_length={length} must divide source.unroll_length={unroll:g}",
    )
    refuse(
        size and windows % size != 0,
        f"source.mini_batch_size={size} must divide the {windows} windows of an iteration, from "
        f"source.num_envs={envs} and source.mini_batch_length={length}",
    )


def _check_replay(source: ReplayConfig) -> None:
    """Check what is kept to learn from, and histories of other learners."""
    kept, length, size = source.replay_buffer_length, source.mini_batch_length, source.mini_batch_size
    others = f"source.offline_buffer_dir={source.offline_buffer_dir}"
    per_env, offline = env_steps(source) // source.num_envs, source.has_offline
    refuse(
        source.replays and source.initial_collect_steps > kept * source.num_envs,
        f"source.initial_collect_steps={source.initial_collect_steps} is more than is kept: "
        f"source.replay_buffer_length={kept} of each of source.num_envs={source.num_envs}",
    )
    refuse(
        source.replays and length > min(kept, per_env),
        f"source.mini_batch_length={length} is longer than the streams to draw from: "
        f"source.replay_buffer_length={kept}, and {per_env} env steps of each environment in all",
    )
    refuse(
        source.draws and not size,
        "source.mini_batch_size=0 draws nothing with source.whole_replay_buffer_training=false",
    )
    refuse(offline and not size, f"source.mini_batch_size=0 draws nothing from {others}")
    refuse(
        offline and not length and not source.replays,
        f"source.mini_batch_length=0 is the unroll with source.clear_replay_buffer=true; {others} needs a length",
    )
    refuse(
        source.whole_replay_buffer_training and source.priority_replay,
        "source.whole_replay_buffer_training=true trains on all steps equally; source.priority_replay=true draws",
    )
    refuse(
        source.clear_replay_buffer and not source.whole_replay_buffer_training,
        "source.clear_replay_buffer=true keeps nothing to draw from; it needs source.whole_replay_buffer_training=true",
    )
    refuse(
        offline and source.offline_buffer_range == "last" and not source.offline_buffer_length,
        "source.offline_buffer_range=last counts source.offline_buffer_length from the end; with "
        "source.offline_buffer_length=0 all is used",
    )
    for option, idle in _WITHOUT_OFFLINE.items():
        refuse(
            getattr(source, option) != idle and not offline,
            f"source.{option}={getattr(source, option)} needs offline histories, but {others}",
        )
