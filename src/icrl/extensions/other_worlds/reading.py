"""Worlds that a model can read beside that of its training, and the tasks there that are new to it."""

from typing import Any

from gymnasium.spaces import Discrete

from icrl.app.root import Config
from icrl.config.options import refuse
from icrl.contracts import Json, PipelineError
from icrl.envs.core import TensorEnv
from icrl.envs.tasks import permuted
from icrl.evaluation.trained import world_of
from icrl.nn.encoders import OF_ROWS
from icrl.nn.heads import make_head
from icrl.runs.files import content_of
from icrl.spaces import EnvSpec


def in_other_world(config: Config, env: TensorEnv, described: Json) -> tuple[EnvSpec, list[int]]:
    """`readable_spec` and `new_tasks` of `env` for the model with the description `described` in its checkpoint."""
    spec = readable_spec(config, env.spec, described["env"])
    return spec, new_tasks(config, env, described["config"], described["tasks"])


def readable_spec(config: Config, spec: EnvSpec, trained: Json) -> EnvSpec:
    """The `spec` of a world for a model that was trained with the `trained` one: equal, but for the number of time step
    embeddings, which is the model's. Raises `ConfigError` if the model cannot read the world."""
    before, encoding = EnvSpec.of(trained), config.model.obs_encoding
    has, had = _unchangeable(config, spec), _unchangeable(config, before)
    for name in has | had:
        now, then = has.get(name), had.get(name)
        refuse(now != then, f"env: the {name} of this world is {now}, but the model was trained with {then}")
    name, now, then = "env.max_episode_steps", spec.max_episode_steps, before.max_episode_steps
    refuse(now > then, f"{name}={now}: the model was trained with {name}={then} and has not learned later time steps")
    listed = (encoding == "cell" or not spec.width) and not spec.obs_shape  # an observation has its own embedding
    if listed and (number := spec.num_obs) != before.num_obs:
        can = f"it can read more only in square rooms with model.obs_encoding={', '.join(OF_ROWS)}, not with {encoding}"
        refuse(
            True, f"env: this world has {number} observations, but the model was trained with {before.num_obs}; {can}"
        )
    return spec._replace(max_episode_steps=before.max_episode_steps)


def _unchangeable(config: Config, spec: EnvSpec) -> dict[str, Any]:
    """Properties that all worlds of a model share, by their names in a message."""
    obs, action = spec.observation_space, spec.action_space
    layers = spec.num_obs // spec.width**2 if spec.width else 0
    counted = isinstance(action, Discrete)
    outputs, head = make_head(config.model, spec).num_parameters, config.model.head  # by default one for each action
    number = "number of actions" if head == "auto" else f"number of outputs of model.head={head}"
    return {
        number if counted else "space of actions": outputs if counted else action,
        "reward values": spec.reward_values,
        "number of layers of observations": layers,
        "number of points and coordinates": spec.points,
        "space of observations": None if isinstance(obs, Discrete) or spec.points[0] else obs,
    }


def new_tasks(config: Config, env: TensorEnv, trained: Json, split: Json) -> list[int]:
    """Tasks to play in `env`, a world that differs from that of the `trained` configuration.

    They are the first `tasks.num_held_out` (0: all) of a seeded permutation, without those that equal a training task
    of `split`: a goal that was learned with another clock is not new. Other rooms that trials drew are not looked at.
    Raises `ConfigError` if there are too few or none, or if development tasks are asked for, which exist in the world
    of the training alone."""
    why = "evaluation.tasks=development: these belong to the training world; in another one give evaluation.tasks=test"
    refuse(config.evaluation.tasks == "development", why)
    with content_of(config.run_folder, PipelineError):
        learned = [split["all"][task] for task in split["train"]]
        known = set(world_of(trained, config.run_folder).fingerprint(learned))
    fingerprints = env.fingerprint(env.all_tasks())
    order = permuted(len(fingerprints), config.tasks.seed)
    new, asked = [task for task in order if fingerprints[task] not in known], config.tasks.num_held_out
    refuse(not new, f"env: the model was trained on all {len(order)} tasks of this world, so none is new")
    refuse(asked > len(new), f"tasks.num_held_out={asked}: must be at most {len(new)}, the number of new tasks here")
    return new[: asked or None]
