"""Composition of a configuration: defaults from the code, presets from `conf/*.yaml`, then `KEY=VALUE` overrides.

`load_config(overrides)` makes every `Config`, and `load_players_config(overrides)` every `PlayersConfig`: for the
command line, notebooks, searches and tests.
"""

import copy
from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from icrl.config.options import Options, in_words, nearest
from icrl.config.root import Config
from icrl.contracts import ConfigError
from icrl.envs import env_options
from icrl.point_game.options import PlayersConfig
from icrl.sources import source_options
from icrl.sources.options import LEARN_NOTHING
from icrl.training.optimizers import OPTIMIZERS

CONF = Path(__file__).resolve().parent.parent / "conf"
CHOICES: dict[str, dict[str, Any]] = {  # groups with several classes, chosen by `name`
    "env": env_options(),
    "source": source_options(),
    "optimizer": OPTIMIZERS,
}
AnyConfig = TypeVar("AnyConfig", Config, PlayersConfig)


def _train_tasks(size: object) -> int:
    return round((size**2 - 1) * 57 / 80) if isinstance(size, int) else 0  # the share of the 9 x 9 room, for any size


def _where_random(split: object, number: object) -> object:
    return number if split == "random" else 0  # other splits determine the remaining tasks


def _least_success(source: str) -> float:
    return 0.0 if source in LEARN_NOTHING else 0.5  # sources that do not learn are not filtered


def _short_life(num_episodes: int, max_episode_steps: int) -> int:
    return -(-(num_episodes + 1) * max_episode_steps // 10) * 10  # steps that are used, rounded up to unrolls of 10


OmegaConf.register_new_resolver("train_tasks", _train_tasks, replace=True)
OmegaConf.register_new_resolver("where_random", _where_random, replace=True)
OmegaConf.register_new_resolver("least_success", _least_success, replace=True)
OmegaConf.register_new_resolver("short_life", _short_life, replace=True)


def load_config(overrides: Iterable[str] = ()) -> Config:
    """Compose and check the configuration; `overrides` as on the command line: `["env.size=7", "seed=1"]`.

    Raises `ConfigError` for an unknown option, a wrong type or range, or options that conflict."""
    return _load("config", Config, list(overrides))


def load_players_config(overrides: Iterable[str] = ()) -> PlayersConfig:
    """Compose and check the configuration of `train_players`, as `load_config` does."""
    return _load("players", PlayersConfig, list(overrides))


@cache
def groups_of(root: type[Config] | type[PlayersConfig]) -> list[str]:
    """Groups with presets, in the order of the defaults list of `root`."""
    page = OmegaConf.load(CONF / ("config.yaml" if root is Config else "players.yaml"))
    return [next(iter(entry)) for entry in page.defaults if OmegaConf.is_config(entry)]


@cache
def presets_of(group: str) -> list[str]:
    """Names of the presets of a group."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def _load(name: str, root: type[AnyConfig], overrides: list[str]) -> AnyConfig:
    groups = groups_of(root)
    composed = OmegaConf.create()
    chosen: list[str] = []
    values: list[str] = []
    for override in overrides:
        key = override.partition("=")[0]
        (chosen if key in groups else values).append(override)
        _check_preset(override, chosen)
    try:
        composed = copy.deepcopy(_composed(name, tuple(chosen)))
        parsed = {key.lstrip("+"): value for key, value in map(_parsed, values)}
        for key, value in parsed.items():
            if key.count(".") < 2:
                OmegaConf.update(composed, key, value, merge=False)
        _fill_in(composed, root)
        for key, value in parsed.items():
            if key.count(".") >= 2:  # part of a schedule
                OmegaConf.update(composed, key, value, merge=False)
        return root.model_validate(OmegaConf.to_container(composed, resolve=True))
    except ValidationError as error:
        raise ConfigError(_in_words(error, root, composed)) from error
    except (HydraException, OmegaConfBaseException, AttributeError, TypeError) as error:
        raise ConfigError(" ".join(str(error).split("\n")[:2])) from error


@lru_cache(maxsize=64)
def _composed(name: str, chosen: tuple[str, ...]) -> DictConfig:
    with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
        composed = compose(name, overrides=list(chosen))
    OmegaConf.set_struct(composed, False)
    return composed


def _check_preset(override: str, chosen: list[str]) -> None:
    key, _, value = override.partition("=")
    if override in chosen and value not in presets_of(key):
        raise ConfigError(f"{override}: must be one of {', '.join(presets_of(key))}{nearest(value, presets_of(key))}")


def _parsed(override: str) -> tuple[str, Any]:
    """Key and value of `KEY=VALUE`, by Hydra's grammar."""
    key, _, written = override.partition("=")
    try:
        found = OverridesParser.create().parse_override(override)
    except HydraException as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"{override}: cannot be read as KEY=VALUE ({reason}); quotes may help: {key}='...'"
        ) from error
    if found.is_delete() or "=" not in override or key.lstrip("+").partition(".")[0] in ("", "hydra"):
        raise ConfigError(f"{override}: there is no such option; --help lists all")
    if written == "???":
        raise ConfigError(f"{override}: no value for {key}")
    return found.key_or_group, found.value()


def _fill_in(composed: DictConfig, root: type[Options]) -> None:
    """Fill in defaults from the code where no preset or override has a value. References between options are resolved
    after that."""
    for group, field in root.model_fields.items():
        kind = _kind(group, field, composed)
        if not (isinstance(kind, type) and issubclass(kind, Options)):
            if group not in composed and not field.is_required():
                composed[group] = field.get_default(call_default_factory=True)
            continue
        if group not in composed:
            composed[group] = {}
        if OmegaConf.is_dict(composed[group]):
            for name, option in kind.model_fields.items():
                if OmegaConf.is_missing(composed[group], name) or name not in composed[group]:
                    composed[group][name] = option.get_default(call_default_factory=True)


def _kind(group: str, field: FieldInfo, composed: Any) -> Any:
    """Class of the options of a group, chosen by the composed configuration."""
    default = field.default_factory
    if group not in CHOICES:
        return default
    name = OmegaConf.select(composed, f"{group}.name", default=default.model_fields["name"].default)  # type: ignore
    if name not in CHOICES[group]:
        raise ConfigError(
            f"{group}.name={name}: must be one of {', '.join(CHOICES[group])}{nearest(name, CHOICES[group])}"
        )
    return CHOICES[group][name]


def _in_words(error: ValidationError, root: type[Options], composed: DictConfig) -> str:
    """One line about the first error of the whole configuration; see `options.in_words`."""
    values: Any = OmegaConf.to_container(composed, resolve=True)
    for group, field in root.model_fields.items():
        kind = _kind(group, field, composed)
        if not (isinstance(kind, type) and issubclass(kind, Options)):
            continue
        if not isinstance(values[group], dict):
            one_of = f"one of {', '.join(presets_of(group))}" if presets_of(group) else "a mapping of its options"
            return f"{group}={values[group]}: must be {one_of}"
        try:
            kind.model_validate(values[group])
        except ValidationError as of_group:
            of_choice = f" with {group}.name={composed[group].name}" if group in CHOICES else ""
            return in_words(of_group, kind, values[group], f"{group}.").replace(
                "no such option", f"no such option{of_choice}"
            )
    return in_words(error, root, values)
