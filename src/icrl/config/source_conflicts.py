"""Conflicts among the options of stage one: how it is paced, and what is learned from."""

from typing import TYPE_CHECKING

from icrl.collection.pace import draws, env_steps, has_offline, replays
from icrl.config.training_schema import ReplayConfig

if TYPE_CHECKING:
    from icrl.config.root import Config

Conflicts = list[tuple[bool, str]]  # whether a configuration has it, and what to say then

ON_POLICY = ("a2c", "ppo")
LEARN_NOTHING = ("noise_distillation", "searcher", "optimal", "random")
WITHOUT_LEARNING = {  # what can only be asked of those who learn
    "async_unroll": False,
    "initial_collect_steps": 0,
    "num_updates_per_train_iter": 1,
    "mini_batch_length": 0,
    "mini_batch_size": 0,
}
WITHOUT_OTHERS = {  # what can only be asked of histories that are there
    "offline_buffer_length": 0,
    "offline_buffer_range": "first",
    "offline_buffer_every": 1,
    "offline_loss_weight": 1.0,
    "rl_train_after_update_steps": 0,
    "rl_train_every_update_steps": 1,
}


def of_pace(config: "Config") -> Conflicts:
    """Of the budget, of unrolls and of who may play ahead; all others need one of the two budgets."""
    source = config.source
    steps, asked, unroll, envs = source.num_env_steps, source.num_iterations, source.unroll_length, source.num_envs
    if not steps and not asked:
        return [(True, "source.num_iterations=0 and source.num_env_steps=0: one of them must be above 0")]
    made = env_steps(source)
    return [
        (
            not made,
            f"source.num_iterations={asked} leaves no env steps after source.rl_train_after_update_steps="
            f"{getattr(source, 'rl_train_after_update_steps', 0)} iterations without any",
        ),
        (
            bool(steps) and made != steps and not asked,
            f"source.num_env_steps={steps} must be a multiple of source.num_envs x source.unroll_length = "
            f"{envs * unroll:g}; the next is {made}",
        ),
        (
            bool(steps and asked) and made != steps,
            f"source.num_iterations={asked} make {made} env steps, with source.num_envs={envs} and "
            f"source.unroll_length={unroll:g}, and source.num_env_steps={steps}: every iteration plays, "
            f"so both must agree; give source.num_env_steps={made} or 0 too",
        ),
        (
            source.name in ON_POLICY and unroll != int(unroll),
            f"source.unroll_length={unroll}: source.name={source.name} learns on-policy, from returns of a whole "
            "number of steps",
        ),
        (
            source.name in ON_POLICY and source.async_unroll,
            f"source.async_unroll=true plays with a policy that is behind; source.name={source.name} learns on-policy",
        ),
        (
            getattr(source, "teacher", "none") != "none" and getattr(source, "max_performance", 1) < 1,
            f"source.max_performance={getattr(source, 'max_performance', 1)} is a floor to the noise of the planner; "
            f"source.teacher={getattr(source, 'teacher', 'none')} is another expert",
        ),
        (
            source.unroll_step_interval > 0 and not source.async_unroll,
            f"source.unroll_step_interval={source.unroll_step_interval} needs source.async_unroll=true",
        ),
        (
            source.num_workers > 0 and source.vectorization == "tensor",
            f"source.num_workers={source.num_workers} needs source.vectorization=process: tensors have no workers",
        ),
        (
            source.initial_collect_steps >= made,
            f"source.initial_collect_steps={source.initial_collect_steps} leaves nothing to learn from: "
            f"source.num_env_steps is {made}",
        ),
        *(
            (
                source.name in LEARN_NOTHING and getattr(source, name) != idle,
                f"source.{name}={getattr(source, name)} is about learning; source.name={source.name} learns nothing",
            )
            for name, idle in WITHOUT_LEARNING.items()
        ),
    ]


def of_memory(config: "Config") -> Conflicts:
    """Of who acts on its past, when it is asked what it would do without one."""
    shown = {
        "source.evaluate": config.source.evaluate,
        "summaries.action_distributions": config.summaries.action_distributions,
        "summaries.outputs": config.summaries.outputs,
    }
    return [
        (
            config.source.name == "searcher" and on,
            f"{name}=true shows what learners would do without their past; source.name=searcher acts on it alone",
        )
        for name, on in shown.items()
    ]


def of_mini_batches(config: "Config") -> Conflicts:
    """Of how an unroll is cut up, where the newest alone is learned from."""
    source = config.source
    size, length, unroll, envs = source.mini_batch_size, source.mini_batch_length, source.unroll_length, source.num_envs
    if replays(source):
        return []
    whole = unroll == int(unroll)  # else the number of windows changes, and with it what divides all of them
    windows = envs * (int(unroll) // length if length and whole else 1)
    return [
        (
            length > 1 and unroll % length != 0,
            f"source.mini_batch_length={length} must divide source.unroll_length={unroll:g}",
        ),
        (
            bool(size) and windows % size != 0,
            f"source.mini_batch_size={size} must divide the {windows} windows of an iteration, from "
            f"source.num_envs={envs} and source.mini_batch_length={length}",
        ),
    ]


def of_replay(config: "Config") -> Conflicts:
    """Of what is kept to learn from, and of histories of others."""
    source = config.source
    if not isinstance(source, ReplayConfig):
        return []
    kept, length, size = source.replay_buffer_length, source.mini_batch_length, source.mini_batch_size
    others = f"source.offline_buffer_dir={source.offline_buffer_dir}"
    per_env = env_steps(source) // source.num_envs
    return [
        (
            replays(source) and source.initial_collect_steps > kept * source.num_envs,
            f"source.initial_collect_steps={source.initial_collect_steps} is more than is kept: "
            f"source.replay_buffer_length={kept} of each of source.num_envs={source.num_envs}",
        ),
        (
            replays(source) and length > min(kept, per_env),
            f"source.mini_batch_length={length} is longer than what is there to draw from: "
            f"source.replay_buffer_length={kept}, and {per_env} env steps of each environment in all",
        ),
        (
            draws(source) and not size,
            "source.mini_batch_size=0 draws nothing with source.whole_replay_buffer_training=false",
        ),
        (has_offline(source) and not size, f"source.mini_batch_size=0 draws nothing from {others}"),
        (
            has_offline(source) and not length and not replays(source),
            f"source.mini_batch_length=0 is the unroll with source.clear_replay_buffer=true; {others} needs a length",
        ),
        (
            source.whole_replay_buffer_training and source.priority_replay,
            "source.whole_replay_buffer_training=true learns from everything alike; source.priority_replay=true draws",
        ),
        (
            source.clear_replay_buffer and not source.whole_replay_buffer_training,
            "source.clear_replay_buffer=true keeps nothing to draw from; it needs "
            "source.whole_replay_buffer_training=true",
        ),
        (
            has_offline(source) and source.offline_buffer_range == "last" and not source.offline_buffer_length,
            "source.offline_buffer_range=last counts source.offline_buffer_length from the end; with "
            "source.offline_buffer_length=0 all is used",
        ),
        *(
            (
                getattr(source, name) != idle and not has_offline(source),
                f"source.{name}={getattr(source, name)} is about histories of others, and {others}",
            )
            for name, idle in WITHOUT_OTHERS.items()
        ),
    ]
