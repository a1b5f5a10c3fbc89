"""Composition of a configuration: defaults from the code, presets from `conf/*.yaml`, then `KEY=VALUE` overrides.

`load_config(overrides)` makes every `Config`, for the command line, notebooks, searches and tests; `compose_config`
also those of programs with options of their own. `presets=FOLDER` among the overrides adds presets of the user's own:
`FOLDER/<group>/<name>.yaml`, which may build on those in `conf/`.
"""

import copy
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from icrl import extensions
from icrl.app.resolvers import RESOLVERS
from icrl.app.root import CHOICES, Config
from icrl.config.modules import checksums, load_module
from icrl.config.options import OR_ELSEWHERE, AnyRoot, Name, Options, first_of, former_of, in_words, quoted, refuse
from icrl.config.schedules import nearest
from icrl.contracts import ConfigError
from icrl.runs.files import PROJECT
from icrl.runs.record import seed_of

_OR_PRESET = "; an extension or a folder of your own (presets=FOLDER) may have it"
CONF = Path(__file__).resolve().parent.parent / "conf"

for _name, _resolver in {**RESOLVERS, **extensions.resolvers()}.items():
    OmegaConf.register_new_resolver(_name, _resolver, replace=True)


def load_config(overrides: Iterable[str] = ()) -> Config:
    """Compose and check the configuration; `overrides` as on the command line: `["env.size=7", "seed=1"]`.

    Raises `ConfigError` for an unknown option, a wrong type or range, or options that conflict."""
    return compose_config(Config, overrides)


@cache
def groups_of(page: str) -> list[str]:
    """Groups with presets, in the order of the defaults list of the `page` of a root."""
    groups = list[str]()
    for entry in OmegaConf.load(_folder_of(page) / f"{page}.yaml").defaults:
        if OmegaConf.is_config(entry):
            groups.append(next(iter(entry)))
        elif entry != "_self_":  # a page that this one begins with
            groups += groups_of(entry)
    return groups


def _preset_folders() -> list[Path]:
    return [CONF, *extensions.preset_folders()]


def _folder_of(page: str) -> Path:
    return next(folder for folder in _preset_folders() if (folder / f"{page}.yaml").exists())


def presets_of(group: str, own: Path | None = None) -> dict[str, Path]:
    """Files of the presets of a group by name, with those in the folder `own`. Raises `ConfigError` if one of these has
    the name of another."""
    presets = {path.stem: path for folder in _preset_folders() for path in sorted((folder / group).glob("*.yaml"))}
    for path in sorted((own / group).glob("*.yaml")) if own else ():
        taken = path.stem in presets and presets[path.stem].parent.parent
        refuse(taken, f"presets={own}: {group}/{path.name} has the name of a preset in {taken}: rename it")
        presets[path.stem] = path
    return presets


def own_presets(overrides: Iterable[str]) -> Path | None:
    """Folder that `presets=FOLDER` among the `overrides` names, relative to the working directory. Raises `ConfigError`
    if it does not exist."""
    named = [_as_typed(override) for override in overrides if override.lstrip("+").startswith("presets=")]
    if not named or (folder := str(named[-1])) == "none":
        return None
    refuse(not Path(folder).is_dir(), f"presets={folder}: must be a folder, relative to the working directory")
    return Path(folder).absolute()


def own_modules(overrides: Iterable[str]) -> list[ModuleType]:
    """Import the modules that `module=` among the `overrides` names."""
    named = [_as_typed(override) for override in overrides if override.lstrip("+").startswith("module=")]
    names = [name for each in named[-1:] for name in (each if isinstance(each, list) else [each])]
    return [load_module(str(name), f"module={name}") for name in names]


def compose_config(root: type[AnyRoot], overrides: Iterable[str]) -> AnyRoot:
    """Compose and check the configuration of class `root`, see `load_config`."""
    overrides = list(overrides)
    modules, own = own_modules(overrides), own_presets(overrides)
    chosen, written = _chosen_and_written(root.page, overrides, own)
    kinds, values = dict[str, type[Options]](), dict[str, Any]()
    try:
        presets = root.page, tuple(chosen)
        composed = _composed(*presets, own) if own else copy.deepcopy(_composed_once(*presets))
        for nested in (False, True):  # last the parts of schedules, which may be defaults
            for key, value in written.items():
                if (key.count(".") >= 2) == nested:
                    OmegaConf.update(composed, key, value, merge=False)
            if not nested:
                kinds = _fill_in(composed, root)
        _write_texts(composed, overrides, {"": root, **kinds})
        values = cast(dict[str, Any], OmegaConf.to_container(composed, resolve=True))
        in_preset = f"module={values.get('module')}: a preset cannot load files; give it on the command line"
        refuse(values.get("module") and not modules, in_preset)
        if issubclass(root, Config):
            world, env = cast(Any, kinds["env"]), values["env"]
            named = world.modules_in(env) if isinstance(env, dict) else {}
            files = [load_module(file, given) for given, file in named.items() if file.endswith(".py")]
            values["code"] = checksums([*modules, *files])
        if values.get("seed", 0) is None:
            values["seed"] = seed_of(PROJECT / str(values["root"]), str(values["name"]))
        return root.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_in_words(error, root, kinds, values)) from error
    except ConfigError as error:  # of a rule: if an option is wrong by itself, that is the reason
        raise ConfigError(_wrong_option(root, kinds, values) or str(error)) from error
    except (HydraException, OmegaConfBaseException, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(" ".join(str(error).split("\n")[:2])) from error


def _chosen_and_written(page: str, overrides: list[str], own: Path | None) -> tuple[list[str], dict[str, Any]]:
    """The `overrides` that choose a preset, and the values of the others by key."""
    chosen, written = list[str](), dict[str, Any]()
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        if key not in groups_of(page):
            written |= _parsed(override)
            continue
        registered = CHOICES[key]() if key in CHOICES else {}
        if value not in (names := presets_of(key, own)) and value in registered:  # it needs no preset
            chosen.append(f"~{key}")
            written |= {f"{key}.name": value} | ({"env.variant": value} if key == "env" else {})
            continue
        if value not in names:
            names = [*dict.fromkeys([*names, *registered])]
            elsewhere = OR_ELSEWHERE if key in ("env", "source", "objective") else _OR_PRESET
            raise ConfigError(f"{override}: must be one of {', '.join(names)}{nearest(value, names)}{elsewhere}")
        chosen.append(f"{key}={value}")
    return chosen, written


def _composed(name: str, chosen: tuple[str, ...], own: Path | None = None) -> DictConfig:
    first = _folder_of(name)
    folders = [folder for folder in _preset_folders() if folder != first] + ([own] if own else [])
    texts = [str(folder).replace("\\", "\\\\").replace("'", "\\'") for folder in folders]
    path = "hydra.searchpath=[" + ",".join(f"'file://{text}'" for text in texts) + "]"
    with initialize_config_dir(config_dir=str(first), version_base="1.3"):
        composed = compose(name, overrides=[*chosen, path])
    OmegaConf.set_struct(composed, False)
    return composed


_parser = cache(OverridesParser.create)
_composed_once = lru_cache(maxsize=64)(_composed)  # presets of ours do not change while the program runs


@lru_cache(maxsize=4096)
def _parsed(override: str) -> Mapping[str, Any]:
    """Value by key of `KEY=VALUE`, by Hydra's grammar; only to be read, for it is kept."""
    key, _, written = override.partition("=")
    try:
        refuse("\0" in override, f"{quoted(override)}: contains a NUL byte, which is not allowed")
        parsed = _parser().parse_override(override)
        refuse(parsed.is_sweep_override(), f"{override}: must be one value, or a list in brackets, {key}=[A,B]")
    except (HydraException, ValueError) as error:  # a ValueError for a number of thousands of digits
        reason, shown = str(error).partition("\n")[0], override if len(override) < 200 else f"{override[:200]}..."
        raise ConfigError(f"{shown}: cannot be read ({reason}); quotes may help: \"{key}='...'\"") from error
    if parsed.is_delete() or "=" not in override or key.lstrip("+").partition(".")[0] in ("", "hydra"):
        raise ConfigError(f"{override}: there is no such option; --help lists all")
    refuse(written == "???", f"{override}: no value for {key}")
    return {parsed.key_or_group.lstrip("+"): parsed.value()}


def _as_typed(override: str) -> Any:
    """Value of `KEY=VALUE`, a number or a flag as it was typed, in a list too: `0.10` is another name than `0.1`."""
    (value,), text = _parsed(override).values(), override.partition("=")[2].strip()
    if isinstance(value, list) and len(parts := text[1:-1].split(",")) == len(value):
        return [_as_typed(f"part={part.strip()}") for part in parts]
    return text if isinstance(value, (int, float)) else value


def _write_texts(composed: DictConfig, overrides: Iterable[str], kinds: Mapping[str, type[Options]]) -> None:
    """Write names and other texts among the `overrides` as typed. `kinds`: class of each group; "" is the root."""
    for override in overrides:
        key = override.lstrip("+").partition("=")[0]
        group, _, name = key.rpartition(".")
        field = kinds[group].model_fields.get(name) if group in kinds else None
        if field and field.annotation in (str, list[Name]):
            OmegaConf.update(composed, key, _as_typed(override), merge=False)


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
                known = f"{', '.join(choices)}{nearest(name, choices)}{OR_ELSEWHERE}"
                raise ConfigError(f"{group}.name={name}: must be one of {known}")
            kind = choices[name]
        kinds[group] = kind
        if group not in composed:
            composed[group] = {}
        if OmegaConf.is_dict(section := composed[group]):
            for name, option in kind.model_fields.items():
                if OmegaConf.is_missing(section, name) or name not in section:
                    section[name] = option.get_default(call_default_factory=True)
    return kinds


def _wrong_option(root: type[Options], kinds: dict[str, type[Options]], values: Any) -> str:
    """One line about the first option that is not allowed by itself, "" if there is none."""
    for group, kind in kinds.items() if values else ():
        try:
            kind.model_validate(values[group])
        except ValidationError as error:
            return _in_words(error, root, kinds, values, group)
        except ConfigError:
            continue
    return ""


def _in_words(
    error: ValidationError, root: type[Options], kinds: dict[str, type[Options]], values: Any, within: str = ""
) -> str:
    """One line about the first error of the whole configuration, or of the group `within`; see `options.in_words`."""
    first = first_of(error)
    group, name = within or str(first["loc"][0]), str(first["loc"][-1])
    if group not in kinds:
        return _or_elsewhere(in_words(error, root, values), group, kinds)
    if not isinstance(values[group], dict):
        return f"{group}={values[group]}: must be a mapping of its options"
    message = in_words(error, kinds[group], values[group], f"{group}.", depth=0 if within else 1)
    if first["type"] != "extra_forbidden":
        return message
    if name in former_of(kinds[group]):
        return f"{group}.{name}: only earlier versions had this option; leave it out"
    if group in CHOICES:
        chosen = f"no such option with {group}.name={values[group]['name']}"
        if owners := [choice for choice, kind in CHOICES[group]().items() if name in kind.model_fields]:
            one = f"give {group}={owners[0]}, or leave it out" if len(owners) == 1 else "choose one, or leave it out"
            belongs = ", ".join(f"{group}={choice}" for choice in owners)
            return f"{group}.{name} belongs to {belongs}: there is {chosen}; {one}"
        message = message.replace("no such option", chosen)
    return _or_elsewhere(message, name, kinds)


def _or_elsewhere(message: str, name: str, kinds: dict[str, type[Options]]) -> str:
    """The `message` that there is no option `name`, with those of this name, or one nearly so, in other groups, unless
    one in its own group begins with it."""
    begins = f"(did you mean {message.partition(':')[0]}" in message
    keys = [f"{group}.{field}" for group, kind in kinds.items() for field in kind.model_fields]
    alike = [key for key in keys if key.endswith(f".{name}")]
    if "no such option" not in message or begins or ("did you mean" in message and not alike):
        return message
    proposed = f" (did you mean {' or '.join(alike)}?)" if alike else nearest(name, keys)
    return message.partition(" (did you mean")[0] + proposed
