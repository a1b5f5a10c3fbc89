"""Options of a search: the program, the options that are searched, and their ranges."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator

from icrl.app.root import Config
from icrl.config.options import Name, Options, Text, group, option

A2C_SPACE: dict[str, Any] = {
    "source.learning_rate": {"low": 1e-4, "high": 3e-2, "log": True},
    "source.entropy_coefficient": {"low": 1e-4, "high": 0.1, "log": True},
    "source.value_coefficient": {"low": 0.1, "high": 2.0, "log": True},
    "source.discount": {"low": 0.8, "high": 0.999},
    "source.hidden_size": [32, 64, 128],
}
_KEYS = {"low": (int, float), "high": (int, float), "log": bool}
_CHOICE = (int, float, str, bool, type(None))


def _check_space(space: dict[str, Any]) -> dict[str, Any]:
    if not space:
        raise ValueError("must have an option to search")
    for key, values in space.items():
        if isinstance(values, list):
            known = values and all(isinstance(value, _CHOICE) for value in values) and len({*values}) == len(values)
            why = "must be a list of different numbers, names or flags"
        else:
            known = isinstance(values, Mapping) and {"low", "high"} <= values.keys() <= _KEYS.keys()
            known = known and all(
                isinstance(value, _KEYS[name]) and isinstance(value, bool) == (name == "log")
                for name, value in values.items()
            )
            known = known and values["low"] < values["high"] and (values["low"] > 0 or not values.get("log"))
            why = "must be a list of choices, or a mapping with low, a greater high and perhaps log: true (low > 0)"
        if not known:
            raise ValueError(f"{key}: {values}: {why}")
    return space


class SearchConfig(Options):
    program: Name = option(
        "train_agents",
        "program that a trial runs. train_agents: A2C on one training task; others: the whole program, evaluated on "
        "development tasks",
    )
    space: Annotated[dict[str, Any], AfterValidator(_check_space)] = option(
        A2C_SPACE,
        "options that are searched, each with a list of choices or a range {low: .., high: .., log: true}, of ints if "
        "both ends are",
    )
    options: list[Text] = option([], "options of each trial of a program that has its own, ['KEY=VALUE', ...]")
    num_trials: int = option(
        20, "trials in all; repeating the command adds only the missing ones", ge=1, le=10**4, may_change=True
    )
    num_learners: int = option(8, "learners per trial, averaged (train_agents)", ge=1, le=10**5)
    num_env_steps: int = option(20000, "env steps per learner (train_agents)", ge=1, le=10**8)


class SearchedConfig(Config):
    """Options of all programs, and those of the search."""

    search: SearchConfig = group(SearchConfig, "the search over options of a program", "search")
