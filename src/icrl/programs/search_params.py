"""Search for hyper-parameters of the source algorithm on one task, by default the one with its goal in the corner.

    python -m src.search_params [KEY=VALUE ...]      -> logs/<name>/search/

Each trial trains a few learners. Its value is the mean success over all their episodes, so both the speed and the
result of learning matter. The same command continues a search: `search.num_trials` is the total number of trials.
"""

import logging
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import torch
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.samplers import TPESampler
from optuna.trial import create_trial
from torch import Tensor
from tqdm import tqdm

from icrl.collection.collect import LocalUnrollWorker, collect, make_learners
from icrl.collection.experience import Experience
from icrl.config.options import replace
from icrl.config.root import Config
from icrl.contracts import ConfigError
from icrl.envs import make_env
from icrl.envs.core import TensorEnv
from icrl.envs.rollout import OpenEpisodes, finished_episodes
from icrl.envs.tasks import split_tasks
from icrl.plots.search_plots import write_search_plots
from icrl.runs.device import check_memory, prepare, recorded
from icrl.runs.divergence import DivergedError
from icrl.runs.files import Identity, check_owner, check_same, identity_of, only_writer, read_owned, write_owned
from icrl.sources.options import check_source
from icrl.sources.pace import num_iterations
from icrl.training.needs import stage_one

_COMPARED = ("seed", "env", "source", "search")

SPACE: dict[str, BaseDistribution] = {  # options of `source` that are searched, with their ranges
    "learning_rate": FloatDistribution(1e-4, 3e-2, log=True),
    "entropy_coefficient": FloatDistribution(1e-4, 0.1, log=True),
    "value_coefficient": FloatDistribution(0.1, 2.0, log=True),
    "discount": FloatDistribution(0.8, 0.999),
    "hidden_size": CategoricalDistribution([32, 64, 128]),
}


def main(config: Config) -> Path:
    """Run the missing trials; returns the folder with the pictures and `results.json`, updated after each trial."""
    device = prepare(config)
    _check(config, device)
    folder, owner = config.folder("logs") / "search", identity_of("search_params", config, _COMPARED)
    given, path = folder / "config.json", folder / "results.json"
    optuna.logging.set_verbosity(logging.WARNING)
    with only_writer(folder):
        if given.exists():
            before, found, _ = read_owned(given, {})
            check_same(config, before, _COMPARED, str(folder))
            check_owner(given, found, owner)
        write_owned(given, owner, 0, recorded(config))
        study = _restored(path, owner)
        done, num_trials = len(study.trials), config.search.num_trials
        with tqdm(total=num_trials, initial=done, desc="search", unit="trial") as bar:
            for number in range(done, num_trials):
                # Seeded for each trial, so that an interrupted search samples the same trials as an undisturbed one.
                study.sampler = TPESampler(seed=config.seed + number)
                trial, value = study.ask(SPACE), 0.0
                try:
                    value = score(_with(config, trial.params), device)
                except DivergedError as error:
                    tqdm.write(f"a trial diverged and gets the value 0: {error}")
                study.tell(trial, value)
                trials = [{"value": one.value, **one.params} for one in study.trials]
                times = [[str(one.datetime_start), str(one.datetime_complete)] for one in study.trials]
                content = {"best": study.best_params, "value": study.best_value, "trials": trials, "times": times}
                write_owned(path, owner, len(trials), content)
                bar.update()
                bar.set_postfix(best=f"{study.best_value:.3f}")
        write_search_plots(folder, study)
    best = " ".join(f"source.{name}={value:.4g}" for name, value in study.best_params.items())
    print(f"best of {len(study.trials)} trials, mean success {study.best_value:.3f}: {best}")
    print(f"trials and pictures: {folder}")
    return folder


def _check(config: Config, device: torch.device) -> None:
    """Raise `ConfigError` if the source cannot be searched, or its trials are impossible."""
    if config.source.name != "a2c":
        raise ConfigError(f"source.name={config.source.name}: the search is over options of source.name=a2c")
    tried = _with(config, {})
    try:
        check_source(tried.source)
    except ConfigError as error:
        raise ConfigError(f"search.num_env_steps={config.search.num_env_steps}, for each trial: {error}") from error
    with closing(make_env(config.env, device)) as env:
        searched_task(config, env)
        check_memory(tried, stage_one(tried, env.spec, 1, "search", recorded=False), device)


def _restored(path: Path, owner: Identity) -> optuna.Study:
    """Study with the trials in the file `path`, if it exists."""
    study = optuna.create_study(direction="maximize")
    if not path.exists():
        return study
    found, run, _ = read_owned(path, {"trials": [dict.fromkeys((*SPACE, "value"), float)], "times": [[str]]})
    check_owner(path, run, owner)
    for params, times in zip(found["trials"], found["times"], strict=True):
        trial = create_trial(value=params.pop("value"), params=params, distributions=SPACE)
        trial.datetime_start, trial.datetime_complete = map(datetime.fromisoformat, times)
        study.add_trial(trial)
    return study


def _with(config: Config, tried: dict[str, Any]) -> Config:
    """Configuration of one trial: the budget of the search and the trial's hyper-parameters."""
    source, search = config.source, config.search
    budget = {"num_learners": search.num_learners, "num_iterations": 0, "num_env_steps": search.num_env_steps}
    kept = min(source.history_steps, search.num_env_steps)  # trials record no histories
    return replace(config, source=replace(source, **budget, history_steps=kept, **tried))


def searched_task(config: Config, env: TensorEnv) -> Tensor:
    """First training task `[1, task_dim]` with its goal in the cell of `search`.

    Raises `ConfigError` if there is none, or if it is held out: options must not be chosen on held-out tasks."""
    search, tasks = config.search, env.all_tasks()
    cells = env.goal_cell(tasks)
    if cells is None:
        raise ConfigError(f"env.name={config.env.name}: the search needs a goal in a room, but this world has no cells")
    found = (cells == search.goal_row * env.spec.width + search.goal_column).nonzero().flatten().tolist()
    where = f"search.goal_row={search.goal_row} and search.goal_column={search.goal_column}"
    if not found:
        raise ConfigError(f"{where}: no task has its goal there")
    held_out = split_tasks(env, config).held_out
    if not (allowed := [task for task in found if task not in held_out]):
        raise ConfigError(f"{where}: is held out by tasks.split={config.tasks.split}, must be a training goal")
    return tasks[allowed[:1]]


def score(config: Config, device: torch.device) -> float:
    """Mean success over all episodes of new learners on the searched task."""
    source, won = config.source, list[np.ndarray]()
    still_open = OpenEpisodes.none(source.num_learners * source.num_envs)
    with closing(make_env(config.env, device)) as env:
        task = searched_task(config, env)
        learner, streams, noise = make_learners(config, env, task, device)
        worker = LocalUnrollWorker(source, env, learner, streams, noise)
        lives = collect(learner, worker, Experience(config, env.spec, task, device))
        for transitions, _, _ in tqdm(lives, "trial", num_iterations(source), unit="iteration", leave=False):
            episodes, still_open = finished_episodes(transitions, still_open, env.spec)
            won.append(episodes.success)
    return float(all_won.mean()) if len(all_won := np.concatenate(won)) else 0.0
