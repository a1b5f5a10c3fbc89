"""Trials of whole programs, for `search_params.py`: their configurations and values."""

import copy
import operator
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from icrl.config.compose import AnyConfig, load_players_config
from icrl.config.root import Config
from icrl.point_game.fixed_players import AGENTS, HOSTS
from icrl.programs import evaluate, extract_policy, finetune, pipeline, train_gpt, train_ilql, train_players
from icrl.runs.device import recorded
from icrl.runs.files import read_json

_LATE, _MATCHES = "reward per env step in later episodes", "rho of the host less rho against the agent"
SUCCESS = "success on development tasks over the last episodes"
PROGRAMS: dict[str, tuple[Callable[[Any], Path], str, str]] = {  # main, stages of options, value
    "train_gpt": (train_gpt.main, "2", _LATE),
    "train_ilql": (train_ilql.main, "ilql", _LATE),
    "extract_policy": (extract_policy.main, "awr", _LATE),
    "finetune": (finetune.main, "finetune", _LATE),
    "evaluate": (evaluate.main, "3", SUCCESS),
    "pipeline": (pipeline.main, "1 2 3", SUCCESS),
    "train_players": (train_players.main, "players", _MATCHES),
}


def trial_of(config: Config, number: int, params: Mapping[str, Any]) -> Any:
    """Configuration of a trial of a whole program. Raises `ConfigError` or `ValidationError` for conflicts in it."""
    name, program = f"{config.name}-trial-{number:03d}", config.search.program
    if program == "train_players":
        shared = {key: getattr(config, key) for key in ("root", "seed", "num_threads")}
        return changed(load_players_config(config.search.options), shared | {"name": name} | dict(params))
    more: dict[str, Any] = {"histories": [name], "run": name} if program == "pipeline" else {}
    return changed(config, {"name": name} | more | dict(params))


def changed(config: AnyConfig, values: Mapping[str, Any]) -> AnyConfig:
    """Checked copy of `config` with other values of the options, or parts of schedules, with these dotted keys."""
    written = copy.deepcopy(recorded(config))
    for key, value in values.items():
        *path, leaf = key.split(".")
        reduce(operator.getitem, path, written)[leaf] = value
    root: Any = type(config)
    return root.model_validate(written)


def value_of(program: str, trial: Any) -> float:
    """Value of the `trial`, a configuration, after a run of `program`. Raises the errors of the program."""
    folder = PROGRAMS[program][0](trial)
    if program == "train_players":
        return skill(read_json(folder / "results.json")["matches"], trial.learning)
    if PROGRAMS[program][2] == SUCCESS:
        return read_json(folder / "results.json")["final"]["development"]["success"]["mean"]
    return read_json(folder / "evaluations.json")["evaluations"][-1]["score"]


def skill(matches: Mapping[str, Any], learning: list[str]) -> float:
    """Mean rho of a trained host with all fixed agents, less that of all fixed hosts with a trained agent."""
    hosts = [matches[f"host_vs_{agent}"]["rho"]["value"] for agent in AGENTS if "host" in learning]
    agents = [matches[f"{host}_vs_agent"]["rho"]["value"] for host in HOSTS if "agent" in learning]
    return float(np.mean(hosts or [0.0]) - np.mean(agents or [0.0]))
