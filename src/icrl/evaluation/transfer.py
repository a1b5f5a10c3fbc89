"""A model in a world that differs from the one it was trained in: whether it can read it, and where results go."""

from __future__ import annotations

from contextlib import closing
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import torch

from icrl.config.env_schema import ENVS, EnvConfig
from icrl.config.options import walk
from icrl.contracts import ConfigError, EnvSpec, Json
from icrl.envs import make_env
from icrl.envs.core import TensorEnv
from icrl.envs.tasks import permuted

if TYPE_CHECKING:
    from icrl.config.root import Config


def changes_of(config: Config, trained: Json) -> dict[str, Any]:
    """The options of the world that differ from those of the `trained` configuration, and their values now. Raises
    `ConfigError` where it is another kind of world."""
    if config.env.name != trained["env"]["name"]:
        raise ConfigError(
            f"env.name={config.env.name}: the model was trained in env.name={trained['env']['name']}, and the "
            "observations of one kind of world mean nothing in another"
        )
    changes = {key: value for key, value, _ in walk(config.env) if trained["env"].get(key) != value}
    return {} if changes.keys() == {"variant"} else changes  # a label alone makes no other world


def suffix_of(changes: dict[str, Any], tasks: str = "test") -> str:
    """What folders with results of other `tasks` than those of the test, or of another world, end with: its `changes`,
    such as `-size=13`."""
    return ("" if tasks == "test" else f"-{tasks}") + "".join(
        f"-{key}={_short(value)}" for key, value in changes.items()
    )


def readable_spec(config: Config, spec: EnvSpec, trained: Json) -> EnvSpec:
    """The `spec` of a world as a model can read it that was trained in a world with the `trained` one: the same, but
    with the embeddings of time steps that the model has. Raises `ConfigError` where it cannot."""
    before = EnvSpec.of(trained)
    for name, now, then in (
        ("number of actions", spec.num_actions, before.num_actions),
        ("reward values", spec.reward_values, before.reward_values),
        ("number of layers of observations", _layers(spec), _layers(before)),
        ("number of points and coordinates", spec.points, before.points),
    ):
        if now != then:
            raise ConfigError(f"env: the {name} of this world is {now}, and the model was trained with {then}")
    if spec.max_episode_steps > before.max_episode_steps:
        raise ConfigError(
            f"env.max_episode_steps={spec.max_episode_steps}: the model was trained with "
            f"env.max_episode_steps={before.max_episode_steps} and knows no later time steps"
        )
    listed = config.model.obs_encoding == "cell" or not spec.width  # each observation has an embedding of its own
    if spec.num_obs != before.num_obs and listed and not spec.obs_shape:
        raise ConfigError(
            f"env: this world has {spec.num_obs} observations and the model was trained with {before.num_obs}; only in "
            f"square rooms with model.obs_encoding=coordinates or framed can it read others, not with "
            f"model.obs_encoding={config.model.obs_encoding}"
        )
    return spec._replace(max_episode_steps=before.max_episode_steps)


def world_of(trained: Json) -> EnvConfig:
    """The world of the `trained` configuration."""
    return ENVS[trained["env"]["name"]](**trained["env"])


def new_tasks(config: Config, env: TensorEnv, trained: Json, split: Json) -> list[int]:
    """Which tasks of `env`, a world that differs from that of the `trained` configuration, are played: the first
    `tasks.num_held_out` (0: all) of their seeded permutation, without those that are the same as one of the training
    tasks of `split`: a goal that was learned without a clock is not new with one. Raises `ConfigError` where there are
    not so many, or none, or where development tasks are asked for, which are those of the training."""
    if config.evaluation.tasks == "development":
        raise ConfigError(
            "evaluation.tasks=development: the development tasks are those of the world of the training, and this is "
            "another; evaluation.tasks=test plays what is new in it"
        )
    with closing(make_env(world_of(trained))) as before:
        known = set(before.fingerprint(torch.tensor([split["all"][task] for task in split["train"]])))
    fingerprints = env.fingerprint(env.all_tasks())
    order = permuted(len(fingerprints), config.tasks.seed)
    new, asked = [task for task in order if fingerprints[task] not in known], config.tasks.num_held_out
    if not new:
        raise ConfigError(f"env: the model was trained on all {len(order)} tasks of this world, and none is new to it")
    if asked > len(new):
        raise ConfigError(f"tasks.num_held_out={asked}: this world has {len(new)} tasks that are new to the model")
    return new[: asked or None]


def _layers(spec: EnvSpec) -> int:
    """In how many layers of cells observations are numbered; 0 where the world is no square room."""
    return spec.num_obs // spec.width**2 if spec.width else 0


def _short(value: Any) -> str:
    """A value as a part of a file name."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if text.replace(".", "").replace("_", "").isalnum() else sha256(text.encode()).hexdigest()[:8]
