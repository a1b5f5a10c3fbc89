"""Shards of stage one: blocks of tasks whose learners live, bit for bit, as they do among all others."""

from typing import Any

import pytest
import torch
from stage_one import CPU, joined

from icrl import extensions
from icrl.app.compose import compose_config, load_config
from icrl.contracts import ConfigError, Rollout
from icrl.envs import make_env
from icrl.envs.tasks import changing, split_tasks
from icrl.extensions.scaling.options import ShardedConfig
from icrl.extensions.scaling.programs.train_shards import check_shards, shard_of
from icrl.recording.record import WHOLE, Part
from icrl.sources.collect import collect, make_experience, make_learners, make_unroll_worker

# Sizes that are no multiple of a vector of numbers, and windows that all learners draw alike.
ROOM = ["env.size=4", "env.max_episode_steps=8", "tasks.num_train=9", "evaluation.num_episodes=2", "data.kept_steps=0"]
LIFE = ["source.num_envs=2", "source.num_env_steps=120", "source.history_steps=120", "model.context_len=4"]
SMALL = [*ROOM, *LIFE, "source.num_learners=2", "source.videos_per_task=0", "data.num_development_tasks=2"]
KINDS = {"a2c": ["source=a2c", "source.unroll_length=5", "source.hidden_size=20"]}
if "async_unrolls" in extensions.NAMES:
    KINDS["a3c"] = ["source=a3c", "source.unroll_length=5", "source.hidden_size=8"]
if {"value_sources", "changing_tasks"} <= {*extensions.NAMES}:
    KINDS["moving values"] = ["source=q_learning", "source.task_change=0.5"]
if "vectors" in extensions.NAMES:
    pendulum = ["source=a2c", "env=pendulum", "env.max_episode_steps=8", "tasks.num_train=5"]
    KINDS["vectors"] = [*pendulum, "source.hidden_size=16", "source.unroll_length=5"]
if "ppo" in extensions.NAMES:
    KINDS["ppo"] = ["source=ppo", "source.unroll_length=10", "source.hidden_size=12", "source.mini_batch_size=2"]
if "experts" in extensions.NAMES:
    KINDS["noise"] = ["source=noise_distillation"]
if "searchers" in extensions.NAMES:
    KINDS["searcher"] = ["source=searcher"]
if "value_sources" in extensions.NAMES:
    KINDS["dqn"] = ["source=dqn", "source.hidden_size=9", "source.initial_collect_steps=20"]


def config_of(kind: str) -> Any:
    room = [one for one in SMALL if kind != "vectors" or not one.startswith(("env.", "tasks."))]
    return load_config([*room, *KINDS[kind]])


def lives(config: Any, block: slice) -> tuple[Rollout, list[torch.Tensor]]:
    """Transitions of the learners of a block of the training tasks, `[T, rows]`, and their parameters after that."""
    env = make_env(config.env, CPU)
    all_tasks, split = env.all_tasks(), split_tasks(env, config)
    tasks, world = all_tasks[split.train[block]], changing(env, config, all_tasks, split.train)
    learner, streams, noise = make_learners(config, env, tasks, CPU, block.start)
    worker = make_unroll_worker(config, world, learner, streams, noise, 0, in_thread=True)
    played = [part[0] for part in collect(learner, worker, make_experience(config, env.spec, tasks, CPU))]
    worker.close()
    return joined(played), [parameter.detach().clone() for _, parameter in learner.parameters()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_shard_lives_as_among_the_others(kind):
    config, count = config_of(kind), 3
    num_tasks = config.tasks.num_train
    whole, parameters = lives(config, slice(0, num_tasks))
    blocks = [Part(index, count).block(num_tasks) for index in range(count)]
    shards = [lives(config, block) for block in blocks]
    for name, column, parts in zip(
        Rollout._fields, whole, zip(*(shard[0] for shard in shards), strict=True), strict=True
    ):
        assert torch.equal(column.nan_to_num(), torch.cat(parts, 1).nan_to_num()), name
    for parameter, parts in zip(parameters, zip(*(shard[1] for shard in shards), strict=True), strict=True):
        assert torch.equal(parameter, torch.cat(parts))


def test_blocks_are_contiguous_and_even():
    blocks = [Part(index, 8).block(57) for index in range(8)]
    assert [task for block in blocks for task in range(57)[block]] == [*range(57)]
    assert {block.stop - block.start for block in blocks} == {7, 8}
    assert WHOLE.block(57) == slice(0, 57)
    config = load_config(["name=run"])
    assert shard_of(config, Part(3, 8)).folder("histories") == config.folder("histories") / "shard-3-of-8"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["shard.count=1"], r"shard\.count=1: must be"),
        (["shard.count=2", "shard.index=2"], r"must be below shard\.count=2"),
        (["shard.count=10"], r"shard\.count=10 .*9 training tasks: give shard\.count=9"),
        (["shard.count=5", "source.num_learners=1"], r"shard\.count=5 .*9 training tasks: give shard\.count=4"),
        (["shard.count=2", "source.shared=true", "source.num_learners=1"], r"shared=true is one learner"),
    ],
)
def test_shards_that_cannot_be_are_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        check_shards(compose_config(ShardedConfig, [*ROOM, *LIFE, "source.num_learners=2", *options]), 9)
