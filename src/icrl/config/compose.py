"""Composition of a configuration: defaults from the code, presets from `conf/*.yaml`, then `KEY=VALUE` overrides.

`load_config(overrides)` makes every `Config`, and `load_players_config(overrides)` every `PlayersConfig`: for the
command line, notebooks, searches and tests. `presets=FOLDER` among the overrides adds presets of the user's own:
`FOLDER/<group>/<name>.yaml`, which may build on those in `conf/`.
"""

import copy
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sized
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from icrl.config.modules import checksums, load_module
from icrl.config.options import Options, first_of, in_words, refuse
from icrl.config.paths import PROJECT
from icrl.config.root import CHOICES, Config
from icrl.config.schedules import nearest
from icrl.contracts import ConfigError
from icrl.point_game.options import PlayersConfig
from icrl.runs.record import seed_of
from icrl.sources.options import LEARN_NOTHING

CONF = Path(__file__).resolve().parent.parent / "conf"
AnyConfig = TypeVar("AnyConfig", Config, PlayersConfig)
_PAGES: dict[Any, str] = {Config: "config", PlayersConfig: "players"}


_LAKE = "FrozenLake-v1"  # of the preset env=gymnasium
_LIFE, _EPISODES, _DEVELOPMENT = 30_000, 40, 4  # env steps of a learner, episodes and tasks, where there is room


def _number_of(*arguments: object) -> bool:
    """True if all `arguments` of a resolver are positive numbers; other values are refused later, where they belong."""
    return all(isinstance(one, (int, float)) and one > 0 for one in arguments)


def _life(horizon: Any, num_envs: Any, unroll_length: Any) -> int:
    """Env steps of a learner: so many that an evaluation of the default length fits, in whole unrolls."""
    if not _number_of(horizon, num_envs, unroll_length):
        return _LIFE
    unroll = num_envs * math.ceil(unroll_length)
    return math.ceil(max(_LIFE, (_EPISODES + 1) * horizon * num_envs) / unroll) * unroll


def _recorded(horizon: Any, num_envs: Any, made: Any) -> int:
    """Recorded env steps of a learner: those of `_life`, if as many are `made`."""
    if not _number_of(num_envs, made):
        return _LIFE
    return max(int(min(_life(horizon, num_envs, 1), made)) // num_envs, 1) * num_envs


def _two_thirds(tasks: Any) -> int:
    """Training tasks among listed ones, or among those of a draw."""
    number = tasks.get("count") if isinstance(tasks, Mapping) else len(tasks) if isinstance(tasks, Sized) else 0
    return max(2, number * 2 // 3) if isinstance(number, int) and number else 0


def _episodes(horizon: Any, _root_: DictConfig) -> int:
    """Episodes of an evaluation: as many as the histories hold after a first one that is cut, at most 40. Searchers
    have histories of the length that the evaluation needs."""
    source = _root_.source
    if source.name == "searcher" or not _number_of(horizon, source.history_steps, source.num_envs):
        return _EPISODES
    return int(max(2, min(_EPISODES, source.history_steps // source.num_envs // horizon - 1)))


def _room_window(length: Any, model: Any, critic: Any) -> int:
    """Steps of a window of stage two in a dark room (0: the context), because learned positions need all steps."""
    return 160 if _number_of(length) and length > 160 and "learned" not in (model, critic) else 0


_RESOLVERS: dict[str, Callable[[Any], object] | Callable[[Any, Any], object] | Callable[[Any, Any, Any], object]] = {
    "train_tasks": lambda size: round((size**2 - 1) * 57 / 80) if isinstance(size, int) else 0,  # as in a 9 x 9 room
    "where_random": lambda split, number: number if split == "random" else 0,  # others determine the remaining tasks
    "least_success": lambda source: 0.0 if source in LEARN_NOTHING else 0.5,  # filtered if they learn
    "short_life": lambda episodes, steps: -(-(episodes + 1) * steps // 10) * 10,  # used steps, in whole unrolls of 10
    "life": _life,
    "recorded": _recorded,
    "episodes": _episodes,
    "world": lambda name: "gymnasium" if name in ("", _LAKE) else re.sub(r"\W+", "_", str(name).lower().split(":")[-1]),
    "lake": lambda name, on_lake, elsewhere: on_lake if name in ("", _LAKE) else elsewhere,
    "dark_room": lambda variant, there, elsewhere: there if variant == "dark_room" else elsewhere,
    "two_thirds": _two_thirds,
    "each": lambda name, number: [{name: value} for value in range(number)],
    "numbers": lambda first, end: [*range(first, end)],
    "development": lambda number: max(1, min(_DEVELOPMENT, number // 3)) if _number_of(number) else _DEVELOPMENT,
    "room_context": lambda model, critic: 160 if "learned" in (model, critic) else 400,
    "room_window": _room_window,
    "first_starts": lambda length, steps: length + steps - 1,  # in reach of windows that begin in episode 1
}
for _name, _resolver in _RESOLVERS.items():
    OmegaConf.register_new_resolver(_name, _resolver, replace=True)


def load_config(overrides: Iterable[str] = ()) -> Config:
    """Compose and check the configuration; `overrides` as on the command line: `["env.size=7", "seed=1"]`.

    Raises `ConfigError` for an unknown option, a wrong type or range, or options that conflict."""
    return compose_config(Config, overrides)


def load_players_config(overrides: Iterable[str] = ()) -> PlayersConfig:
    """Compose and check the configuration of `train_players`, as `load_config` does."""
    return compose_config(PlayersConfig, overrides)


@cache
def groups_of(root: type[Config] | type[PlayersConfig]) -> list[str]:
    """Groups with presets, in the order of the defaults list of `root`."""
    page = OmegaConf.load(CONF / f"{_PAGES[root]}.yaml")
    return [next(iter(entry)) for entry in page.defaults if OmegaConf.is_config(entry)]


def presets_of(group: str, own: Path | None = None) -> dict[str, Path]:
    """Files of the presets of a group by name, with those in the folder `own`. Raises `ConfigError` if one of these has
    the name of another."""
    found = {path.stem: path for path in sorted((CONF / group).glob("*.yaml"))}
    for path in sorted((own / group).glob("*.yaml")) if own else ():
        refuse(path.stem in found, f"presets={own}: {group}/{path.name} has the name of a preset in {CONF}: rename it")
        found[path.stem] = path
    return found


def own_presets(overrides: Iterable[str]) -> Path | None:
    """Folder that `presets=FOLDER` among the `overrides` names, relative to the working directory. Raises `ConfigError`
    if it does not exist."""
    named = [_parsed(override) for override in overrides if override.lstrip("+").startswith("presets=")]
    if not named or (folder := str(named[-1]["presets"])) == "none":
        return None
    refuse(not Path(folder).is_dir(), f"presets={folder}: must be a folder, relative to the working directory")
    return Path(folder).absolute()


def own_modules(overrides: Iterable[str]) -> list[ModuleType]:
    """Import the modules that `module=` among the `overrides` names."""
    named = [_parsed(override)["module"] for override in overrides if override.lstrip("+").startswith("module=")]
    names = [name for each in named[-1:] for name in (each if isinstance(each, list) else [each])]
    return [load_module(str(name), f"module={name}") for name in names]


def module_of_id(env: Any) -> list[ModuleType]:
    """Import the file in `env.id=FILE.py:Name`, if the world `env` is one of these."""
    given = str(env.get("id", "")) if isinstance(env, dict) else ""
    file = given.rpartition(":")[0]
    return [load_module(file, f"env.id={given}")] if file.endswith(".py") else []


def compose_config(root: type[AnyConfig], overrides: Iterable[str]) -> AnyConfig:
    """Compose and check the configuration of class `root`, see `load_config`."""
    overrides = list(overrides)
    modules = own_modules(overrides)
    own = own_presets(overrides)
    chosen, written = _chosen_and_written(root, overrides, own)
    kinds: dict[str, type[Options]] = {}
    values: dict[str, Any] = {}
    try:
        composed = _composed(_PAGES[root], (*chosen, _search_path(own))) if own else _kept(_PAGES[root], tuple(chosen))
        for nested in (False, True):  # last the parts of schedules, which may be defaults
            for key, value in written.items():
                if (key.count(".") >= 2) == nested:
                    OmegaConf.update(composed, key, value, merge=False)
            if not nested:
                kinds = _fill_in(composed, root)
        values = cast(dict[str, Any], OmegaConf.to_container(composed, resolve=True))
        if root is Config:
            values["code"] = checksums([*modules, *module_of_id(values["env"])])
        if values.get("seed", 0) is None:
            values["seed"] = seed_of(PROJECT / str(values["root"]), str(values["name"]))
        return root.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_in_words(error, root, kinds, values)) from error
    except (HydraException, OmegaConfBaseException, AttributeError, TypeError) as error:
        raise ConfigError(" ".join(str(error).split("\n")[:2])) from error


def _chosen_and_written(
    root: type[AnyConfig], overrides: Iterable[str], own: Path | None
) -> tuple[list[str], dict[str, Any]]:
    """The `overrides` that choose a preset, and the values of the others by key."""
    chosen, written = list[str](), dict[str, Any]()
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        if key not in groups_of(root):
            written |= _parsed(override)
            continue
        registered = CHOICES[key]() if key in CHOICES else {}
        if value not in (names := presets_of(key, own)) and value in registered:  # it needs no preset
            chosen.append(f"~{key}")
            written |= {f"{key}.name": value} | ({"env.variant": value} if key == "env" else {})
            continue
        if value not in names:
            names = [*dict.fromkeys([*names, *registered])]
            more = "; module=FILE registers one of your own" if key in ("env", "source", "objective") else ""
            raise ConfigError(f"{override}: must be one of {', '.join(names)}{nearest(value, names)}{more}")
        chosen.append(f"{key}={value}")
    return chosen, written


def _kept(name: str, chosen: tuple[str, ...]) -> DictConfig:
    """Copy of a composition of presets that cannot change while the program runs."""
    return copy.deepcopy(_composed_once(name, chosen))


def _search_path(own: Path) -> str:
    quoted = str(own).replace("\\", "\\\\").replace("'", "\\'")
    return f"hydra.searchpath=['file://{quoted}']"


def _composed(name: str, chosen: tuple[str, ...]) -> DictConfig:
    with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
        composed = compose(name, overrides=list(chosen))
    OmegaConf.set_struct(composed, False)
    return composed


_composed_once = lru_cache(maxsize=64)(_composed)


@lru_cache(maxsize=4096)
def _parsed(override: str) -> Mapping[str, Any]:
    """Value by key of `KEY=VALUE`, by Hydra's grammar; only to be read, for it is kept."""
    key, _, written = override.partition("=")
    try:
        found = _parser().parse_override(override)
    except HydraException as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"{override}: cannot be read ({reason}); quotes may help: {key}='...'") from error
    if found.is_delete() or "=" not in override or key.lstrip("+").partition(".")[0] in ("", "hydra"):
        raise ConfigError(f"{override}: there is no such option; --help lists all")
    if written == "???":
        raise ConfigError(f"{override}: no value for {key}")
    return {found.key_or_group.lstrip("+"): found.value()}


_parser = cache(OverridesParser.create)


def _fill_in(composed: DictConfig, root: type[Options]) -> dict[str, type[Options]]:
    """Fill in defaults from the code where no preset or override has a value; returns the class of each group.
    References between options are resolved after that."""
    kinds: dict[str, type[Options]] = {}
    for group, field in root.model_fields.items():
        kind: Any = field.default_factory
        if kind is None:
            continue
        if group in CHOICES:
            name, choices = OmegaConf.select(composed, f"{group}.name", default=kind().name), CHOICES[group]()
            if name not in choices:
                raise ConfigError(f"{group}.name={name}: must be one of {', '.join(choices)}{nearest(name, choices)}")
            kind = choices[name]
        kinds[group] = kind
        if group not in composed:
            composed[group] = {}
        if OmegaConf.is_dict(section := composed[group]):
            for name, option in kind.model_fields.items():
                if OmegaConf.is_missing(section, name) or name not in section:
                    section[name] = option.get_default(call_default_factory=True)
    return kinds


def _in_words(error: ValidationError, root: type[Options], kinds: dict[str, type[Options]], values: Any) -> str:
    """One line about the first error of the whole configuration; see `options.in_words`."""
    first = first_of(error)
    group, name = str(first["loc"][0]), str(first["loc"][-1])
    if group not in kinds:
        return _or_elsewhere(in_words(error, root, values), group, kinds)
    if not isinstance(values[group], dict):
        return f"{group}={values[group]}: must be a mapping of its options"
    found = in_words(error, kinds[group], values[group], f"{group}.", depth=1)
    if first["type"] != "extra_forbidden":
        return found
    if group in CHOICES:
        chosen = f"no such option with {group}.name={values[group]['name']}"
        if owners := [choice for choice, kind in CHOICES[group]().items() if name in kind.model_fields]:
            one = f"give {group}={owners[0]}, or leave it out" if len(owners) == 1 else "choose one, or leave it out"
            belongs = ", ".join(f"{group}={choice}" for choice in owners)
            return f"{group}.{name} belongs to {belongs}: there is {chosen}; {one}"
        found = found.replace("no such option", chosen)
    return _or_elsewhere(found, name, kinds)


def _or_elsewhere(found: str, name: str, kinds: dict[str, type[Options]]) -> str:
    """The message `found` that there is no option `name`, with one of this name or nearly so in another group."""
    keys = [f"{group}.{field}" for group, kind in kinds.items() for field in kind.model_fields]
    alike = [key for key in keys if key.endswith(f".{name}")]
    if "no such option" not in found or ("did you mean" in found and not alike):
        return found
    proposed = f" (did you mean {alike[0]}?)" if alike else nearest(name, keys)
    return found.partition(" (did you mean")[0] + proposed
