"""Search the source algorithm's hyper-parameters on one task, the goal in the corner by default.

    python -m src.search_params [KEY=VALUE ...]      -> logs/<name>/search/

Each trial trains a few learners and is scored by the mean success over all episodes of their lives, so that both speed
and the end count. Called again, the study goes on: `search.num_trials` is the number of trials in all.
"""

import logging
from contextlib import closing
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
from icrl.collection.pace import num_iterations
from icrl.config.command_line import run_stage
from icrl.config.options import replace
from icrl.config.root import Config
from icrl.config.source_rules import check_source
from icrl.contracts import ConfigError, Json
from icrl.envs import make_env
from icrl.envs.core import TensorEnv
from icrl.envs.episodes import OpenEpisodes, finished_episodes
from icrl.envs.tasks import split_tasks
from icrl.plots.search_plots import write_search_plots
from icrl.runs.device import prepare, recorded
from icrl.runs.divergence import DivergedError
from icrl.runs.files import only_writer
from icrl.runs.identity import Identity, check_owner, check_same, identity_of, read_owned, write_owned
from icrl.runs.memory import check_memory
from icrl.training.needs import stage_one

_COMPARED = ("seed", "env", "source", "search")

# What is tried: options of `source` and their ranges.
SPACE: dict[str, BaseDistribution] = {
    "learning_rate": FloatDistribution(1e-4, 3e-2, log=True),
    "entropy_coefficient": FloatDistribution(1e-4, 0.1, log=True),
    "value_coefficient": FloatDistribution(0.1, 2.0, log=True),
    "discount": FloatDistribution(0.8, 0.999),
    "hidden_size": CategoricalDistribution([32, 64, 128]),
}


def main(config: Config) -> Path:
    """Run the missing trials; returns the folder with `results.json`, which is up to date after each trial, and the
    picture."""
    device = prepare(config)
    if config.source.name != "a2c":
        raise ConfigError(f"source.name={config.source.name}: the search is over options of source.name=a2c")
    tried = _with(config, {})
    try:
        check_source(tried.source)
    except ConfigError as error:
        raise ConfigError(f"search.num_env_steps={config.search.num_env_steps} is that of a trial: {error}") from error
    with closing(make_env(config.env, device)) as env:
        searched_task(config, env)
        check_memory(tried, stage_one(tried, env.spec, 1, "search", recorded=False), device)
    folder, owner = config.folder("logs") / "search", identity_of("search_params", config, _COMPARED)
    optuna.logging.set_verbosity(logging.WARNING)
    with only_writer(folder):
        if (folder / "config.json").exists():
            before, whose, _ = read_owned(folder / "config.json", {})
            check_same(config, before, _COMPARED, str(folder))
            check_owner(folder / "config.json", whose, owner)
        write_owned(folder / "config.json", owner, 0, recorded(config))
        study = _restore(folder, owner)
        done, num_trials = len(study.trials), config.search.num_trials
        with tqdm(total=num_trials, initial=done, desc="search", unit="trial") as bar:
            for number in range(done, num_trials):
                # Seeded anew for each trial, so that a search that was interrupted tries what an undisturbed one would.
                study.sampler = TPESampler(seed=config.seed + number)
                trial = study.ask(SPACE)
                study.tell(trial, _score_or_0(_with(config, trial.params), device))
                _keep(folder, study, owner)
                bar.update()
                bar.set_postfix(best=f"{study.best_value:.3f}")
        write_search_plots(folder, _trials(folder, owner))
    best = " ".join(f"source.{name}={value:.4g}" for name, value in study.best_params.items())
    print(f"best of {len(study.trials)} trials, mean success {study.best_value:.3f}: {best}")
    print(f"trials and picture: {folder}")
    return folder


def _restore(folder: Path, owner: Identity) -> optuna.Study:
    """A study with the trials that `folder` holds, if any."""
    study = optuna.create_study(direction="maximize")
    if (folder / "results.json").exists():
        for params in _trials(folder, owner):
            value = params.pop("value")
            study.add_trial(create_trial(params=params, distributions=SPACE, value=value))
    return study


def _trials(folder: Path, owner: Identity) -> list[Json]:
    found, whose, _ = read_owned(folder / "results.json", {"trials": [dict.fromkeys((*SPACE, "value"), float)]})
    check_owner(folder / "results.json", whose, owner)
    return found["trials"]


def _keep(folder: Path, study: optuna.Study, owner: Identity) -> None:
    trials = [{"value": trial.value, **trial.params} for trial in study.trials]
    found = {"best": study.best_params, "value": study.best_value, "trials": trials}
    write_owned(folder / "results.json", owner, len(trials), found)


def _with(config: Config, tried: dict[str, Any]) -> Config:
    """The configuration of one trial: the search's budget and the trial's hyper-parameters."""
    search = config.search
    budget = {"num_learners": search.num_learners, "num_iterations": 0, "num_env_steps": search.num_env_steps}
    return replace(config, source=replace(config.source, **budget, **tried))


def searched_task(config: Config, env: TensorEnv) -> Tensor:
    """The first training task `[1, task_dim]` that the cell of `search` stands for. Raises `ConfigError` where there is
    none: no goal, or one that is held out, which a search would choose options by."""
    search, tasks = config.search, env.all_tasks()
    cells = env.goal_cell(tasks)
    if cells is None:
        raise ConfigError(f"env.name={config.env.name}: the search is on a goal in a room, and this world has no cells")
    found = (cells == search.goal_row * env.spec.width + search.goal_column).nonzero().flatten().tolist()
    where = f"search.goal_row={search.goal_row} and search.goal_column={search.goal_column}"
    if not found:
        raise ConfigError(f"{where}: no task has its goal there")
    held_out = split_tasks(env, config).held_out
    if not (allowed := [task for task in found if task not in held_out]):
        raise ConfigError(f"{where}: held out by tasks.split={config.tasks.split}, must be the goal of another task")
    return tasks[allowed[:1]]


def _score_or_0(config: Config, device: torch.device) -> float:
    """`score`, and 0 where the learners diverge."""
    try:
        return score(config, device)
    except DivergedError as error:
        tqdm.write(f"a trial counts 0: {error}")
        return 0.0


def score(config: Config, device: torch.device) -> float:
    """Mean success over all episodes of the lives of fresh learners on the search's goal."""
    source = config.source
    still_open = OpenEpisodes.none(source.num_learners * source.num_envs)
    won: list[np.ndarray] = []
    with closing(make_env(config.env, device)) as env:
        goal = searched_task(config, env)
        learner, streams, noise = make_learners(config, env, goal, device)
        experience = Experience(config, env.spec, goal, device)
        player = LocalUnrollWorker(source, env, learner, streams, noise)
        lives = collect(learner, player, experience)
        for transitions, _, _ in tqdm(lives, "trial", num_iterations(source), unit="iteration", leave=False):
            episodes, still_open = finished_episodes(transitions, still_open, env.spec)
            won.append(episodes.success)
    all_won = np.concatenate(won)
    return float(all_won.mean()) if len(all_won) else 0.0


def command() -> None:
    """Run this program with the options of the command line."""
    run_stage(main, "src.search_params", __doc__ or "")
