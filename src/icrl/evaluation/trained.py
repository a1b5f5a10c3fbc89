"""Trained models as policies: opened from checkpoints, played in their world or another one, evaluated in training."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from icrl.config.modules import recorded_options
from icrl.config.options import refuse, replace, walk
from icrl.contracts import ConfigError, Json
from icrl.data.history_store import Histories
from icrl.data.windows import check_stores, open_stores
from icrl.envs import env_options, make_env
from icrl.envs.core import EnvConfig, TensorEnv
from icrl.evaluation.in_context import play_episodes, summary_of
from icrl.evaluation.kinds import PolicyLoader, TrainedPolicy, plain_gpt
from icrl.nn.gpt import GPT
from icrl.nn.gpt_policy import Acting, GPTPolicy
from icrl.runs.checkpoint import open_model
from icrl.runs.device import device_of
from icrl.runs.evaluations import EvalsConfig, Evaluation
from icrl.spaces import EnvSpec

if TYPE_CHECKING:
    from icrl.app.root import Config


# Where a model acts in another world than that of its training, given that and the description in its checkpoint: the
# spec of the world as the model reads it, and the tasks to play; of an extension.
OTHER_WORLDS: list[Callable[[Config, TensorEnv, Json], tuple[EnvSpec, list[int]]]] = []


def policy_of(config: Config, model: GPT | Acting) -> GPTPolicy:
    """The model as a policy with the configured decoding and context."""
    return GPTPolicy(model, config.evaluation.sample_probability, config.policy.temperature, config.policy.context_kept)


@dataclass
class InContextEvaluator:
    """Plays a checkpoint of stage two or three on the tasks with the numbers `development`, each stream from an empty
    context. The score is the reward per env step in later episodes."""

    config: Config
    development: list[int]
    load_policy: PolicyLoader = plain_gpt

    def __call__(self, state: dict[str, Any]) -> Evaluation:
        config, device, options = self.config, device_of(self.config), self.config.policy
        with closing(make_env(config.env, device)) as env:
            model = self.load_policy(config, env.spec, state["model"], device)
            policy = GPTPolicy(model, config.evals.sample_probability, options.temperature, options.context_kept)
            tasks = env.all_tasks().to(device)[self.development]
            played, _ = play_episodes(policy, env, tasks, *streams_and_episodes(config.evals), config.seed)
        metrics = {f"development_{name}": value for name, value in summary_of(played).items()}
        return Evaluation(metrics, metrics["development_late_reward"])


def streams_and_episodes(options: EvalsConfig) -> tuple[int, int]:
    """Streams per task, and the number of first episodes of each that count: ceil(episodes / streams). (Counting the
    first episodes to end over all streams would favour short ones.)"""
    return options.num_eval_environments, math.ceil(options.num_eval_episodes / options.num_eval_environments)


def open_start(config: Config, trained: TrainedPolicy, spec: EnvSpec, device: torch.device) -> GPT | None:
    """The distilled model that a fine-tuned one started from, for a world with `spec`; None if another kind acts."""
    start = trained.described.get("inputs", {}).get("start", "none")
    if start == "none" or not trained.is_plain:
        return None
    before, about = open_model(config.run_folder / "gpt", "last", "train_gpt", device)
    refuse(
        about["state_sha256"] != start,
        f"{config.run_folder / 'gpt'} is not the model from which {trained.folder} was fine-tuned",
    )
    return plain_gpt(config, spec, before["model"], device)


def training_store(config: Config, trained: Json) -> Histories:
    """First store that the `trained` model learned from. Raises `ConfigError` if its rows are too short to compare."""
    about, folder = trained["config"], config.run_folder
    split = recorded_options(type(config.tasks), about["tasks"], folder, "tasks")
    stores = open_stores(replace(config, env=world_of(about, folder), tasks=split))
    check_stores(stores, trained["histories"], folder)
    episodes, store = config.evaluation.num_episodes, stores[0]
    row_len, needed = store.columns["obs"].shape[1], (episodes + 1) * store.spec.max_episode_steps
    given = f"evaluation.num_episodes={episodes} needs {needed} steps per row for the episodes of the source"
    refuse(needed > row_len, f"{given}, but {store.folder} has {row_len}")
    return store


def changes_of(config: Config, trained: Json) -> dict[str, Any]:
    """New values of the world's options that differ from the `trained` ones. Raises `ConfigError` for another kind."""
    if (name := config.env.name) != (before := trained["env"]["name"]):
        raise ConfigError(
            f"env.name={name}: the model was trained in env.name={before}, and cannot read other kinds of worlds"
        )
    given, trained_in = (config.env.modules_in(env) for env in (vars(config.env), trained["env"]))
    other = [*given.values()] != [*trained_in.values()]  # which only a command may name, see `modules`
    told = f"{', '.join(given)}: the model was trained in {', '.join(trained_in)}; the module must be the same"
    refuse(other, told)
    fixed = [(key, value) for key, value, declared in walk(config.env) if not declared.may_change]
    changes = {key: value for key, value in fixed if trained["env"].get(key) != value}
    return {} if changes.keys() == {"variant"} else changes  # a new label alone is the same world


def suffix_of(changes: dict[str, Any], tasks: str = "test") -> str:
    """Suffix of the folders with results, such as `-size=13`, from `changes` of options and of `evaluation.tasks`."""
    suffix = "" if tasks == "test" else f"-{tasks}"
    for key, value in changes.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        plain = text.replace(".", "").replace("_", "").isalnum()  # else no name of a file
        suffix += f"-{key}={text if plain else sha256(text.encode()).hexdigest()[:8]}"
    return suffix


def world_of(trained: Json, folder: Path) -> EnvConfig:
    """Options of the world in the `trained` configuration of the run in `folder`."""
    return recorded_options(env_options()[trained["env"]["name"]], trained["env"], folder, "env")


def tasks_by_part(config: Config, split: Json) -> dict[str, list[int]]:
    """Tasks to play in the world of the training, by part: the main part first, training tasks last. With
    `evaluation.tasks=development` there are no held-out tasks among them."""
    learned = [task for task in split["train"] if task not in split["development"]]
    test = {"held_out": split["held_out"]} if config.evaluation.tasks == "test" else {}
    development = {"development": split["development"]} if split["development"] else {}
    return test | development | {"train": learned[: config.evaluation.num_train_tasks or None]}
