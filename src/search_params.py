"""Search the source algorithm's hyper-parameters on one task, the goal in the corner by default.

    python -m src.search_params [KEY=VALUE ...]      -> logs/<name>/search/

Each trial trains a few learners and is scored by the mean success over all episodes of their lives, so that both speed
and the end count. Called again, the study goes on: `search.num_trials` is the number of trials in all.
"""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import torch
from tqdm import tqdm

from src.config import Config, SourceConfig, check_same
from src.envs import make_env
from src.envs.episodes import OpenEpisodes, finished_episodes
from src.evaluation.search_plots import write_search_plots
from src.files import only_writer, read_json, write_json
from src.runtime import prepare, recorded, run_stage
from src.training.collect import collect, make_learners

_COMPARED = ("seed", "env", "source", "search")


def main(config: Config) -> Path:
    """Run the missing trials; returns the folder with `results.json`, `study.log` and the plots."""
    device = prepare(config)
    folder = config.folder("logs") / "search"
    optuna.logging.set_verbosity(logging.WARNING)
    with only_writer(folder):
        if (folder / "config.json").exists():
            check_same(config, read_json(folder / "config.json"), _COMPARED, str(folder))
        write_json(folder / "config.json", recorded(config))
        backend = optuna.storages.journal.JournalFileBackend(str(folder / "study.log"))
        study = optuna.create_study(
            study_name=config.source.name,
            direction="maximize",
            storage=optuna.storages.JournalStorage(backend),
            load_if_exists=True,
        )
        done = len(study.get_trials(states=[optuna.trial.TrialState.COMPLETE]))
        with tqdm(total=config.search.num_trials, initial=done, desc="search", unit="trial") as bar:
            for number in range(done, config.search.num_trials):
                # Seeded anew for each trial, so that a search that was interrupted tries what an undisturbed one would.
                study.sampler = optuna.samplers.TPESampler(seed=config.seed + number)
                study.optimize(lambda trial: score(suggest(trial, config), device), n_trials=1)
                bar.update()
                bar.set_postfix(best=f"{study.best_value:.3f}")
        trials = [{"value": trial.value, **trial.params} for trial in study.get_trials() if trial.value is not None]
        write_json(folder / "results.json", {"best": study.best_params, "value": study.best_value, "trials": trials})
        write_search_plots(folder, trials)
    best = " ".join(f"source.{name}={value:.4g}" for name, value in study.best_params.items())
    print(f"best of {len(trials)} trials, mean success {study.best_value:.3f}: {best}")
    print(f"trials and plots: {folder}")
    return folder


def suggest(trial: optuna.Trial, config: Config) -> Config:
    """The configuration of one trial: the search's budget and the trial's hyper-parameters."""
    search = config.search
    tried: dict[str, Any] = {
        "learning_rate": trial.suggest_float("learning_rate", 1e-4, 3e-2, log=True),
        "entropy_coefficient": trial.suggest_float("entropy_coefficient", 1e-4, 0.1, log=True),
        "value_coefficient": trial.suggest_float("value_coefficient", 0.1, 2.0, log=True),
        "discount": trial.suggest_float("discount", 0.8, 0.999),
        "hidden_size": trial.suggest_categorical("hidden_size", [32, 64, 128]),
    }
    source: SourceConfig = replace(
        config.source, num_learners=search.num_learners, num_env_steps=search.num_env_steps, **tried
    )
    return replace(config, source=source)


def score(config: Config, device: torch.device) -> float:
    """Mean success over all episodes of the lives of fresh learners on the search's goal."""
    env, source, search = make_env(config.env, device), config.source, config.search
    goal = torch.tensor([[search.goal_row * config.env.size + search.goal_column]], device=device)
    learner, streams, noise = make_learners(config, env, goal, device)
    still_open = OpenEpisodes.none(source.num_learners * source.num_envs)
    won: list[np.ndarray] = []
    loop = collect(env, learner, streams, noise, source.rollout_len)
    for _, (transitions, _, _) in zip(
        range(source.num_env_steps // source.num_envs // source.rollout_len), loop, strict=False
    ):
        episodes, still_open = finished_episodes(transitions, still_open)
        won.append(episodes.returns > 0)
    all_won = np.concatenate(won)
    return float(all_won.mean()) if len(all_won) else 0.0


if __name__ == "__main__":
    run_stage(main, "src.search_params", __doc__ or "")
