"""Trials of whole programs: their configurations and values."""

import copy
import operator
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

from icrl import extensions
from icrl.app.compose import compose_config
from icrl.app.root import Config
from icrl.config.options import AnyOptions
from icrl.extensions.search.options import SearchedConfig
from icrl.programs import evaluate, finetune, pipeline, train_gpt
from icrl.runs.files import read_json

LATE = "reward per env step in later episodes"
SUCCESS = "success on development tasks over the last episodes"
PROGRAMS: dict[str, tuple[Callable[[Any], Path], str, str]] = {  # main, stages of options, value
    "train_gpt": (train_gpt.main, "2", LATE),
    "finetune": (finetune.main, "3", LATE),
    "evaluate": (evaluate.main, "4", SUCCESS),
    "pipeline": (pipeline.main, "1 2 3", SUCCESS),
}


def _searched() -> Iterator[tuple[str, Any]]:
    """Programs of extensions that can be searched: their modules have `SEARCHED`, the stages of their options and words
    for the value of a run, and `value(folder, config)`, unless that is the score of its last evaluation."""
    for name, module in extensions.programs().items():
        if hasattr(program := import_module(module), "SEARCHED"):
            yield name, program


OTHERS = dict(_searched())
PROGRAMS |= {name: (program.main, *program.SEARCHED) for name, program in OTHERS.items()}


def trial_of(config: SearchedConfig, number: int, params: Mapping[str, Any]) -> Any:
    """Configuration of a trial of a whole program. Raises `ConfigError` or `ValidationError` for conflicts in it."""
    name, program = f"{config.name}-trial-{number:03d}", config.search.program
    if program in OTHERS:
        shared = {key: getattr(config, key) for key in ("root", "seed", "num_threads")}
        other = compose_config(OTHERS[program].OPTIONS, config.search.options)
        return changed(other, shared | {"name": name} | dict(params))
    more: dict[str, Any] = {"histories": [name], "run": name} if program == "pipeline" else {}
    whole = Config.model_validate({key: value for key, value in config if key in Config.model_fields})
    return changed(whole, {"name": name} | more | dict(params))


def changed(config: AnyOptions, values: Mapping[str, Any]) -> AnyOptions:
    """Checked copy of `config` with other values of the options, or parts of schedules, with these dotted keys."""
    written = copy.deepcopy(config.model_dump())
    for key, value in values.items():
        *path, leaf = key.split(".")
        reduce(operator.getitem, path, written)[leaf] = value
    kind: Any = type(config)
    return kind.model_validate(written)


def value_of(program: str, trial: Any) -> float:
    """Value of the `trial`, a configuration, after a run of `program`. Raises the errors of the program."""
    folder = PROGRAMS[program][0](trial)
    if hasattr(other := OTHERS.get(program), "value"):
        return other.value(folder, trial)
    if PROGRAMS[program][2] == SUCCESS:
        return read_json(folder / "results.json")["final"]["development"]["success"]["mean"]
    return float(read_json(folder / "evaluations.json")["evaluations"][-1]["score"])
