"""Search for hyper-parameters of a program, by default of A2C on one task, the training task that is hardest by chance.

python -m src.search_params [KEY=VALUE ...]      -> logs/<name>/search/

A trial of A2C trains a few learners. Its value is the mean success over all their episodes, so both the speed and the
result of learning matter. With `search.program=train_gpt 'search.space={model.embed_dim: [32, 64]}'` it searches over
options of another program: a trial runs that under the name <name>-trial-<number>. Options that follow from others, as
those of `encoder=model` from `model.*`, keep their values. Trials are valued on development tasks, never on held-out
ones. The same command continues a search: `search.num_trials` is the total number of trials.
"""

import logging
import re
import signal
import threading
from collections.abc import Mapping
from contextlib import ExitStack, closing
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import torch
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import TPESampler
from optuna.trial import TrialState, create_trial
from pydantic import ValidationError
from torch import Tensor
from tqdm import tqdm

from icrl.app.root import Config
from icrl.config.options import refuse, replace, walk
from icrl.config.schedules import nearest
from icrl.contracts import ConfigError, PipelineError, Stopped
from icrl.envs import make_env
from icrl.envs.core import TensorEnv
from icrl.envs.rollout import OpenEpisodes, finished_episodes
from icrl.envs.tasks import split_tasks
from icrl.evaluation.references import exact_references
from icrl.extensions.search.options import SearchedConfig
from icrl.extensions.search.pictures import shown, write_search_plots
from icrl.extensions.search.trials import OTHERS, PROGRAMS, changed, trial_of, value_of
from icrl.runs.device import prepare
from icrl.runs.divergence import DivergedError
from icrl.runs.files import Identity, check_owner, check_same, identity_of, only_writer, read_owned, write_owned
from icrl.runs.processes import Progress, progress_bar
from icrl.sources.collect import UnrollWorker, collect, make_experience, make_learners
from icrl.sources.options import check_source, num_iterations

OPTIONS = SearchedConfig
LARGE = "search.num_learners, source.num_envs"

_NEVER = ("name", "root", "num_threads", "presets", "launch")  # compared between two calls of a search
_FIXED = {"name", "root", "presets", "trainer.evaluate", "evaluation.tasks"}  # set or needed by the search
_SOURCE = {"num_learners", "num_env_steps", "num_iterations", "history_steps", "videos_per_task"}  # same for each trial
_A2C = "mean success over all episodes of a life"


def main(config: SearchedConfig) -> Path:
    """Run the missing trials; returns the folder with the pictures and `results.json`, updated after each trial."""
    device, program = prepare(config), config.search.program
    _check(config, device)
    compared = [name for name in type(config).model_fields if name not in _NEVER]
    compared = compared if program in PROGRAMS else ["seed", "search", "env", "source"]
    folder, owner = config.folder("logs") / "search", identity_of("search_params", config, compared)
    given, path, space = folder / "config.json", folder / "results.json", space_of(config)
    optuna.logging.set_verbosity(logging.WARNING)
    with only_writer(folder), ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():  # no other thread may set handlers
            stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, _stop))
        if given.exists():
            before, found, _ = read_owned(given, {})
            check_same(config, before, compared, str(folder))
            check_owner(given, found, owner)
        write_owned(given, owner, 0, config.model_dump())
        study = _restored(path, owner, space)
        done, num_trials = len(study.trials), config.search.num_trials
        with Progress("search", num_trials, done, "trial") as progress:
            for number in range(done, num_trials):
                # Seeded for each trial, so that an interrupted search samples the same trials as an undisturbed one.
                # Not by a sum, with which trial 0 of seed 1 would be trial 1 of seed 0.
                study.sampler = TPESampler(seed=int(np.random.default_rng((config.seed, number)).integers(2**32)))
                trial = study.ask(space)
                value = _value(config, number, trial.params, device)
                study.tell(trial, value, state=_state_of(value))
                trials = [{"value": one.value, **one.params} for one in study.trials]
                times = [[str(one.datetime_start), str(one.datetime_complete)] for one in study.trials]
                best = {"best": study.best_params, "value": study.best_value} if _has_value(study) else {}
                write_owned(path, owner, len(trials), best | {"trials": trials, "times": times})
                progress.advance()
                progress.tell(f"best {best['value']:.3f}" if best else "none has a value")
        if not _has_value(study):
            every = f"all {len(study.trials)} trials diverged or are impossible"
            raise PipelineError(f"{every}: give other ranges in search.space, under another name=")
        value = PROGRAMS[program][2] if program in PROGRAMS else _A2C
        write_search_plots(folder, study, value)
    best = " ".join(f"{name}={shown(found)}" for name, found in study.best_params.items())
    print(f"best of {len(study.trials)} trials, {value} {study.best_value:.3f}: {best}")
    print(f"trials and pictures: {folder}")
    return folder


def _stop(*_: object) -> None:
    """Handler of SIGTERM between trainings, which have their own."""
    raise Stopped("SIGTERM: all finished trials are saved; the same command continues")


def space_of(config: SearchedConfig) -> dict[str, BaseDistribution]:
    """Distribution of each option that is searched."""
    space: dict[str, BaseDistribution] = {}
    for key, values in config.search.space.items():
        if isinstance(values, list):
            space[key] = CategoricalDistribution(values)
        else:
            low, high, log = values["low"], values["high"], values.get("log", False)
            whole = isinstance(low, int) and isinstance(high, int)
            space[key] = IntDistribution(low, high, log) if whole else FloatDistribution(low, high, log)
    return space


def _check(config: SearchedConfig, device: torch.device) -> None:
    """Raise `ConfigError` if the program cannot be searched, or its trials are impossible."""
    search, program = config.search, config.search.program
    names = ("train_agents", *PROGRAMS)
    one_of = f"search.program={program}: must be one of {', '.join(names)}{nearest(program, names)}"
    refuse(program not in names, one_of)
    other = config.source.name != "a2c" and program not in PROGRAMS
    refuse(other, f"source.name={config.source.name}: search.program=train_agents searches options of source.name=a2c")
    tried = trial_of(config, 0, {}) if program in PROGRAMS else _with(config, {})
    _check_keys(config, tried)
    needs = f"search.program={' or '.join(OTHERS) or 'a program'}, which has options of its own"
    refuse(search.options and program not in OTHERS, f"search.options={search.options}: is for {needs}")
    if program in ("evaluate", "pipeline"):
        tasks, why = config.evaluation.tasks, "trials must not be chosen on held-out tasks"
        given = f"evaluation.tasks={tasks} with search.program={program}"
        refuse(tasks != "development", f"{given}: {why}; give development")
    elif program in PROGRAMS and isinstance(tried, Config):
        need = f"search.program={program} needs trainer.evaluate=true, whose last evaluation is the value of a trial"
        refuse(not tried.trainer.evaluate, need)
    if program in PROGRAMS:
        return
    try:
        check_source(tried.source)
    except ConfigError as error:
        told = re.sub(r"source\.(num_env_steps|num_learners)", r"search.\1", str(error))  # which set those of a trial
        raise ConfigError(f"search.num_env_steps={config.search.num_env_steps}, for each trial: {told}") from error


def _check_keys(config: SearchedConfig, tried: Any) -> None:
    """Raise `ConfigError` if `search.space` has an option that the program does not use."""
    program = config.search.program
    stages = {key: field.stages for key, _, field in walk(tried)}
    values = {key: value for key, value, _ in walk(tried)}
    used = {*PROGRAMS[program][1].split(), "all"} if program in PROGRAMS else {"1"}
    fixed = _FIXED | ({"histories", "run"} if program == "pipeline" else set())
    fixed |= set() if program in PROGRAMS else {f"source.{name}" for name in _SOURCE}
    for key in config.search.space:
        refuse(key in fixed, f"search.space: {key}: this option cannot be searched; leave it out")
        declared = next((name for name in stages if f"{key}.".startswith(f"{name}.")), "")  # of it or its schedule
        refuse(not declared, f"search.space: {key}: there is no such option{nearest(key, stages)}")
        value = values[declared]
        for part in key.removeprefix(declared).split(".")[1:]:
            none = f"search.space: {key}: {declared}={values[declared]} has no such part"
            refuse(not isinstance(value, Mapping), none)
            value = value.get(part)
        of, where = stages[declared], f"search.space: {key} has no effect on search.program={program}"
        alone = program in PROGRAMS or key.startswith("source.")
        refuse(not alone, f"{where}, which searches only source.*; give search.program=pipeline")
        refuse(not used & {*of.replace(",", "").split()}, f"{where}: it belongs to stage {of}")


def _restored(path: Path, owner: Identity, space: dict[str, BaseDistribution]) -> optuna.Study:
    """Study with the trials in the file `path`, if it exists."""
    study = optuna.create_study(direction="maximize")
    if not path.exists():
        return study
    found, run, _ = read_owned(path, {"trials": [{"value": (float, type(None))}], "times": [[str]]})
    check_owner(path, run, owner)
    for params, times in zip(found["trials"], found["times"], strict=True):
        value = params.pop("value")
        trial = create_trial(state=_state_of(value), value=value, params=params, distributions=space)
        trial.datetime_start, trial.datetime_complete = map(datetime.fromisoformat, times)
        study.add_trial(trial)
    return study


def _state_of(value: float | None) -> TrialState:
    """State of a trial. The sampler takes one without a value for worse than all others; it is never the best."""
    return TrialState.PRUNED if value is None else TrialState.COMPLETE


def _has_value(study: optuna.Study) -> bool:
    return any(one.value is not None for one in study.trials)


def _value(config: SearchedConfig, number: int, params: dict[str, Any], device: torch.device) -> float | None:
    """Value of a trial; None if it diverges or its options conflict."""
    program = config.search.program
    try:
        trial = trial_of(config, number, params) if program in PROGRAMS else _with(config, params)
    except (ValidationError, ConfigError) as error:
        return _without_value(error)
    try:
        return value_of(program, trial) if program in PROGRAMS else score(trial, device)
    except DivergedError as error:
        return _without_value(error)


def _without_value(error: Exception) -> None:
    tqdm.write(f"a trial diverged or is impossible, and counts as the worst: {' '.join(str(error).split())}")


def _with(config: SearchedConfig, tried: dict[str, Any]) -> SearchedConfig:
    """Configuration of one trial: the budget of the search and the trial's hyper-parameters, by `source.NAME`. Raises
    `ValidationError` if one of these is not allowed."""
    source, search = config.source, config.search
    budget = {"num_learners": search.num_learners, "num_iterations": 0, "num_env_steps": search.num_env_steps}
    kept = min(source.history_steps, search.num_env_steps)  # trials record no histories
    short = replace(source, **budget, history_steps=kept)
    of_source = {key.removeprefix("source."): value for key, value in tried.items()}
    return replace(config, source=changed(short, of_source) if tried else short)


def searched_task(config: Config, env: TensorEnv) -> Tensor:
    """The training task `[1, task_dim]` that random play solves least, or the first where that is not known exactly.
    Options must not be chosen on held-out tasks."""
    tasks = env.all_tasks()[split_tasks(env, config).train]
    exact = exact_references(env, tasks)
    return tasks[np.argmin(exact["random"]["success"])][None] if exact else tasks[:1]


def score(config: Config, device: torch.device) -> float:
    """Mean success over all episodes of new learners on the searched task."""
    source, won = config.source, list[np.ndarray]()
    still_open = OpenEpisodes.none(source.num_learners * source.num_envs)
    with closing(make_env(config.env, device)) as env:
        task = searched_task(config, env)
        learner, streams, noise = make_learners(config, env, task, device)
        worker = UnrollWorker(source, env, learner, streams, noise)
        lives = collect(learner, worker, make_experience(config, env.spec, task, device))
        for transitions, _, _ in progress_bar(lives, "trial", num_iterations(source), unit="iteration", leave=False):
            episodes, still_open = finished_episodes(transitions, still_open, env.spec)
            won.append(episodes.success)
    return float(all_won.mean()) if len(all_won := np.concatenate(won)) else 0.0
