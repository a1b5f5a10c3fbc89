"""The configuration: composed from `conf/*.yaml` and overrides, checked against the declarations in `schema.py`, or in
`players_schema.py` for `train_players`.

`load_config(overrides)` is the one way to a `Config`, `load_players_config(overrides)` to a `PlayersConfig`: for the
command line, notebooks, search and tests.
"""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, cast, get_origin

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from icrl.config.env_schema import ENVS
from icrl.config.options import allowed, check_range, walk
from icrl.config.players_conflicts import check_players
from icrl.config.players_schema import PlayersConfig
from icrl.config.root import Config
from icrl.config.rules import check_conflicts
from icrl.config.source_conflicts import LEARN_NOTHING
from icrl.config.training_schema import SOURCES
from icrl.contracts import ConfigError

CONF = Path(__file__).resolve().parent.parent / "conf"


def _train_tasks(size: object) -> int:
    if not isinstance(size, int):
        return 0  # what is wrong with it is said where types are checked
    return round((size**2 - 1) * 57 / 80)  # the split of the 80 goals of a 9 x 9 room, for any room


def _where_random(split: object, number: object) -> object:
    return number if split == "random" else 0  # another rule says itself which tasks are left


def _least_success(source: str) -> float:
    return 0.0 if source in LEARN_NOTHING else 0.5  # who does not learn cannot have failed to


def _short_life(num_episodes: int, max_episode_steps: int) -> int:
    return -(-(num_episodes + 1) * max_episode_steps // 10) * 10  # just what is shown of it, in unrolls of 10


OmegaConf.register_new_resolver("train_tasks", _train_tasks, replace=True)
OmegaConf.register_new_resolver("where_random", _where_random, replace=True)
OmegaConf.register_new_resolver("least_success", _least_success, replace=True)
OmegaConf.register_new_resolver("short_life", _short_life, replace=True)


def load_config(overrides: Iterable[str] = ()) -> Config:
    """Compose and check the configuration; `overrides` as on the command line: `["env.size=7", "seed=1"]`.

    Raises `ConfigError` for an unknown or missing key, a wrong type or range, or options that conflict."""
    lists = ("histories", "data.keep_every", "env.opponents", "env.dimensions", "tasks.held_out")
    config = cast(Config, _load("config", Config, overrides, lists))
    check_conflicts(config)
    return config


def load_players_config(overrides: Iterable[str] = ()) -> PlayersConfig:
    """As `load_config`, of `train_players`."""
    config = cast(PlayersConfig, _load("players", PlayersConfig, overrides, ("host.opponents", "agent.opponents")))
    check_players(config)
    return config


def _load(name: str, kind: type, overrides: Iterable[str], lists: Iterable[str] = ()) -> Any:
    """The configuration of the file `name`, an instance of `kind` in which every option is in its range; of `lists`
    one item may be written as it is."""
    overrides = list(overrides)
    _check_keys(overrides)
    try:
        with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
            composed = compose(name, overrides=[part for one in overrides for part in _whole(one)])
        for key in lists:
            if (one := OmegaConf.select(composed, key)) is not None and not OmegaConf.is_config(one):
                OmegaConf.update(composed, key, [one])
        typed = OmegaConf.merge(_schema(kind, composed), composed)
        if missing := OmegaConf.missing_keys(typed):
            raise ConfigError(f"no value for {', '.join(sorted(missing))}")
        config = OmegaConf.to_object(typed)
    except (HydraException, OmegaConfBaseException, ValueError) as error:  # ValueError: a number as a preset
        raise ConfigError(_in_one_line(error)) from error
    for key, value, field in walk(config):
        if field.type is bool and not isinstance(OmegaConf.select(composed, key), bool):
            raise ConfigError(f"{key}={OmegaConf.select(composed, key)}: must be true or false")
        check_range(key, value, field)
    return config


def _check_keys(overrides: Iterable[str]) -> None:
    """Refuse what Hydra would not mind: overrides without a key, for itself, and several experiments in one."""
    for override in overrides:
        key, _, value = override.partition("=")
        if not key.lstrip("+~") or key.lstrip("+~").partition(".")[0] == "hydra":
            raise ConfigError(f"{override}: There is no such option; --help lists all")
        if key == "experiment" and value.startswith("["):
            raise ConfigError(f"{override}: must be one name")


def _whole(override: str) -> list[str]:
    """A schedule on the command line replaces the one before it; Hydra would merge the two mappings, and refuse a list
    without a word on what is allowed. A part of a schedule may be new to it."""
    key, _, value = override.partition("=")
    if key.count(".") > 1:
        return [f"++{override}"]
    return [f"~{key}", f"+{key}={value}"] if value.startswith(("{", "[")) else [override]


def _schema(root: type, composed: DictConfig) -> DictConfig:
    """Types of all options of `root`; the names of the world and of the source decide which ones they have."""
    schema = OmegaConf.structured(root)
    groups: dict[str, Any] = {field.name: field.type for field in fields(root) if is_dataclass(field.type)}
    for group, kinds in (("env", ENVS), ("source", SOURCES)) if root is Config else ():
        name = OmegaConf.select(composed, f"{group}.name")
        if name not in kinds:
            raise ConfigError(f"{group}.name={name}: must be one of {', '.join(kinds)}")
        schema[group] = OmegaConf.structured(kinds[name])
        groups[group] = kinds[name]
    declared = [(f"{group}.{field.name}", field) for group, kind in groups.items() for field in fields(kind)]
    for key, field in [*((field.name, field) for field in fields(root)), *declared]:
        value = OmegaConf.select(composed, key)
        is_list = value is None or OmegaConf.is_list(value)
        if get_origin(field.type) is list and not is_list:  # OmegaConf would not name the field
            raise ConfigError(f"{key}={value}: must be {allowed(field)}")
    return schema


def _in_one_line(error: Exception) -> str:
    """The first line of a Hydra or OmegaConf error with the key it is about."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines[0].startswith("Could not delete"):  # what `_whole` asks for; the key is in quotes
        key = lines[0].split("'")[1]
        return f"{key}: There is no such option; --help lists all"
    if lines[0].startswith("Could not override"):  # what Hydra goes on to say does not help here
        return f"{lines[0]} There is no such option; --help lists all"
    key = next((line for line in lines[1:] if line.startswith("full_key:")), "")
    return f"{key.replace('full_key:', '').strip()}: {lines[0]}" if key else " ".join(lines)
