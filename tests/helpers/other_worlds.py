"""Changed configurations, and the tasks there that are new to a trained model."""

from contextlib import closing
from typing import Any

from icrl.app.root import Config
from icrl.config.options import replace
from icrl.envs import make_env
from icrl.evaluation.trained import OTHER_WORLDS


def changed(config: Config, **options: Any) -> Config:
    return replace(config, env=replace(config.env, **options))


def holding_out(config: Config, number: int) -> Config:
    return replace(config, tasks=replace(config.tasks, num_held_out=number))


def played(config: Config, before: Config, train: list[int]) -> list[list[int]]:
    """Tasks in the world of `config` that are new to a model trained on the tasks `train` of `before`."""
    with closing(make_env(before.env)) as first, closing(make_env(config.env)) as env:
        split = {"all": first.all_tasks().tolist(), "train": train}
        described = {"env": first.spec.to_json(), "config": before.model_dump(), "tasks": split}
        return env.all_tasks()[OTHER_WORLDS[-1](config, env, described)[1]].tolist()
