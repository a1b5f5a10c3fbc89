"""Trained models as policies: opened from checkpoints, in the world of the training or in another one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from icrl.config.options import replace, walk
from icrl.contracts import ConfigError, EnvSpec, Json
from icrl.data.history_store import Histories
from icrl.data.windows import check_stores, open_stores
from icrl.envs import env_options, make_env
from icrl.envs.core import EnvConfig, TensorEnv
from icrl.envs.tasks import permuted
from icrl.nn.gpt import GPT
from icrl.nn.gpt_policy import GPTPolicy, Guided
from icrl.objectives.imitation import inverse_temperature
from icrl.runs.device import dtype_of
from icrl.training.critics import PROGRAM, check_critic, load_critic, make_critic, open_finished

if TYPE_CHECKING:
    from icrl.config.root import Config
    from icrl.nn.gpt_policy import PolicyConfig

PolicyLoader = Callable[["Config", EnvSpec, dict[str, Any], torch.device], GPT | Guided]


def plain_gpt(config: Config, spec: EnvSpec, weights: dict[str, Any], device: torch.device) -> GPT:
    """Loader of a sequence model or an extracted policy."""
    model = GPT(config.model, spec).to(device, dtype_of(config))
    model.load_state_dict(weights)
    return model


def lone_critic(config: Config, spec: EnvSpec, weights: dict[str, Any], device: torch.device) -> Guided:
    """Loader of a critic in training, which acts as the policy that AWR extracts from it."""
    critic = make_critic(config, spec).to(device, dtype_of(config))
    critic.load_state_dict(weights)
    return Guided(None, critic.target, inverse_temperature(config.awr))


def policy_of(config: Config, model: GPT | Guided) -> GPTPolicy:
    """The model as a policy with the configured decoding and context."""
    return GPTPolicy(model, config.evaluation.sample_probability, config.policy.temperature, config.policy.context_kept)


class TrainedPolicy(NamedTuple):
    """The checkpoint that `policy.model` and `policy.advantage_scale` choose, before a model is made of it."""

    folder: Path  # of its checkpoints; for a guided model, those of the model
    described: Json  # description in the checkpoint
    compared: tuple[str, ...]  # groups of options that must equal those of the training
    checksum: str
    step: int  # of the checkpoint
    suffixes: dict[str, Any]  # see `policy_suffixes`
    weights: dict[str, Any] | None  # of the model; None: the critic acts alone

    def make(self, config: Config, spec: EnvSpec, device: torch.device) -> GPT | Guided:
        """The model for a world with `spec` (see `readable_spec`)."""
        model = plain_gpt(config, spec, self.weights, device) if self.weights else None
        if model and not config.policy.advantage_scale:
            return model
        critic, _ = load_critic(config, device, spec, "last" if model else config.evaluation.checkpoint)
        return Guided(model, critic.target, config.policy.advantage_scale)


def policy_suffixes(policy: PolicyConfig) -> dict[str, Any]:
    """Options of the policy in the name of a results folder, for `suffix_of`."""
    model, scale = policy.model, policy.advantage_scale
    return ({"policy": model} if model != "gpt" else {}) | ({"advantage": scale} if scale else {})


def open_trained(config: Config, device: torch.device) -> TrainedPolicy:
    """The trained policy that `config` chooses. Raises `ConfigError` if its training is not finished, or if a critic
    does not fit the model that it guides."""
    name, scale, values = config.policy.model, config.policy.advantage_scale, ("encoder", "decoder", "critic")
    own = {"gpt": ("objective",), "critic": values}.get(name, ("awr", *values))
    folder = config.run_folder / ("ilql" if name == "critic" else name)
    program = {"gpt": "train_gpt", "critic": PROGRAM}.get(name, "extract_policy")
    state, about = open_finished(folder, config.evaluation.checkpoint, program, device)
    checksum, described = about["state_sha256"], about["description"]
    if scale and name != "critic":
        _, advisor = open_finished(config.run_folder / "ilql", "last", PROGRAM, device)
        check_critic(config, advisor["description"], described)
        checksum = f"{checksum}+{advisor['state_sha256']}"
    compared = ("data", "model", "optimizer", "trainer", "device", *own)
    weights = state["model"] if name != "critic" else None
    return TrainedPolicy(folder, described, compared, checksum, about["step"], policy_suffixes(config.policy), weights)


def training_store(config: Config, trained: Json) -> Histories:
    """First history store that the `trained` model learned from. Raises `ConfigError` if its rows are too short for
    `evaluation.num_episodes`."""
    about = trained["config"]
    stores = open_stores(replace(config, env=world_of(about), tasks=type(config.tasks)(**about["tasks"])))
    check_stores(stores, trained["histories"], config.run_folder)
    episodes, store = config.evaluation.num_episodes, stores[0]
    row_len, needed = store.columns["obs"].shape[1], (episodes + 1) * store.spec.max_episode_steps
    if needed > row_len:
        raise ConfigError(
            f"evaluation.num_episodes={episodes} needs {needed} steps per row for the episodes of the source, but "
            f"{store.folder} has {row_len}"
        )
    return store


def changes_of(config: Config, trained: Json) -> dict[str, Any]:
    """Options of the world that differ from the `trained` configuration, with their new values. Raises `ConfigError` if
    it is another kind of world."""
    if config.env.name != trained["env"]["name"]:
        raise ConfigError(
            f"env.name={config.env.name}: the model was trained in env.name={trained['env']['name']}, and cannot read "
            "observations of another kind"
        )
    changes = {key: value for key, value, _ in walk(config.env) if trained["env"].get(key) != value}
    return {} if changes.keys() == {"variant"} else changes  # a new label alone is the same world


def suffix_of(changes: dict[str, Any], tasks: str = "test") -> str:
    """Suffix of the folders with results, such as `-size=13`, from `changes` of options and of `evaluation.tasks`."""
    suffix = "" if tasks == "test" else f"-{tasks}"
    for key, value in changes.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        plain = text.replace(".", "").replace("_", "").isalnum()  # else no name of a file
        suffix += f"-{key}={text if plain else sha256(text.encode()).hexdigest()[:8]}"
    return suffix


def readable_spec(config: Config, spec: EnvSpec, trained: Json) -> EnvSpec:
    """The `spec` of a world for a model that was trained with the `trained` one: equal, but for the number of time step
    embeddings, which is the model's. Raises `ConfigError` if the model cannot read the world."""
    before = EnvSpec.of(trained)
    layers, layers_before = (one.num_obs // one.width**2 if one.width else 0 for one in (spec, before))
    for name, now, then in (
        ("number of actions", spec.num_actions, before.num_actions),
        ("reward values", spec.reward_values, before.reward_values),
        ("number of layers of observations", layers, layers_before),
        ("number of points and coordinates", spec.points, before.points),
    ):
        if now != then:
            raise ConfigError(f"env: the {name} of this world is {now}, but the model was trained with {then}")
    if spec.max_episode_steps > before.max_episode_steps:
        raise ConfigError(
            f"env.max_episode_steps={spec.max_episode_steps}: the model was trained with "
            f"env.max_episode_steps={before.max_episode_steps} and has not learned later time steps"
        )
    listed = config.model.obs_encoding == "cell" or not spec.width  # each observation has an embedding of its own
    if spec.num_obs != before.num_obs and listed and not spec.obs_shape:
        raise ConfigError(
            f"env: this world has {spec.num_obs} observations, but the model was trained with {before.num_obs}; only "
            f"in square rooms with model.obs_encoding=coordinates or framed can it read more, not with "
            f"model.obs_encoding={config.model.obs_encoding}"
        )
    return spec._replace(max_episode_steps=before.max_episode_steps)


def world_of(trained: Json) -> EnvConfig:
    """Options of the world of the `trained` configuration."""
    return env_options()[trained["env"]["name"]](**trained["env"])


def new_tasks(config: Config, env: TensorEnv, trained: Json, split: Json) -> list[int]:
    """Tasks to play in `env`, a world that differs from that of the `trained` configuration.

    They are the first `tasks.num_held_out` (0: all) of a seeded permutation, without those that equal a training task
    of `split`: a goal that was learned with another clock is not new. Raises `ConfigError` if there are too few or
    none, or if development tasks are asked for, which exist in the world of the training alone."""
    if config.evaluation.tasks == "development":
        raise ConfigError(
            "evaluation.tasks=development: development tasks belong to the training world, and this is another one; "
            "give evaluation.tasks=test to play its new tasks"
        )
    with closing(make_env(world_of(trained))) as before:
        known = set(before.fingerprint(torch.tensor([split["all"][task] for task in split["train"]])))
    fingerprints = env.fingerprint(env.all_tasks())
    order = permuted(len(fingerprints), config.tasks.seed)
    new, asked = [task for task in order if fingerprints[task] not in known], config.tasks.num_held_out
    if not new:
        raise ConfigError(f"env: the model was trained on all {len(order)} tasks of this world, so none is new")
    if asked > len(new):
        raise ConfigError(f"tasks.num_held_out={asked}: must be at most {len(new)}, the number of new tasks here")
    return new[: asked or None]


def tasks_by_part(config: Config, split: Json) -> dict[str, list[int]]:
    """Tasks to play in the world of the training, by part: the main part first, training tasks last. With
    `evaluation.tasks=development` there are no held-out tasks among them."""
    learned = split["train"][: len(split["train"]) - len(split["development"])]
    test = {"held_out": split["held_out"]} if config.evaluation.tasks == "test" else {}
    development = {"development": split["development"]} if split["development"] else {}
    return test | development | {"train": learned[: config.evaluation.num_train_tasks or None]}
