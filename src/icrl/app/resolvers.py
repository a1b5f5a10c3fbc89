"""Resolvers: functions by which presets make a value follow from others, as in `${train_tasks:${env.size}}`.

They get whatever a user wrote, before it is checked, so none may raise."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from icrl.config.options import LARGEST
from icrl.sources import source_options
from icrl.sources.options import SourceConfig

_LIFE, _EPISODES, _DEVELOPMENT = 30_000, 40, 4  # env steps of a learner, episodes and tasks, where there is room


def numbers_of(*arguments: object) -> bool:
    """True if all `arguments` of a resolver are positive numbers of a size that an option can have; other values are
    refused later, where they belong."""
    return all(isinstance(one, (int, float)) and 0 < one <= LARGEST for one in arguments)


def _kind(source: Any) -> type[SourceConfig]:
    """Class of the options of the source of this name."""
    return source_options().get(str(source), SourceConfig)


def _life(horizon: Any, num_envs: Any, unroll_length: Any) -> int:
    """Env steps of a learner: so many that an evaluation of the default length fits, in whole unrolls."""
    if not numbers_of(horizon, num_envs, unroll_length):
        return _LIFE
    unroll = Fraction(str(float(unroll_length)))
    unrolls = math.ceil(math.ceil(max(_LIFE, (_EPISODES + 1) * horizon * num_envs) / num_envs) / unroll)
    return math.floor(unrolls * unroll) * num_envs


def _recorded(horizon: Any, num_envs: Any, made: Any) -> int:
    """Recorded env steps of a learner: those of `_life`, if as many are `made`."""
    if not numbers_of(num_envs, made):
        return _LIFE
    return max(int(min(_life(horizon, num_envs, 1), made)) // num_envs, 1) * num_envs


def _episodes(horizon: Any, _root_: DictConfig) -> int:
    """Episodes of an evaluation: as many as the histories hold after a first one that is cut, at most 40. Agents
    that learn in context have histories of the length that the evaluation needs."""
    source = _root_.source
    if _kind(source.name).in_context or not numbers_of(horizon, source.history_steps, source.num_envs):
        return _EPISODES
    return int(max(2, min(_EPISODES, source.history_steps // source.num_envs // horizon - 1)))


def _learns_positions(root: DictConfig) -> bool:
    """True if the model, or another network of the configuration, learns an embedding of each position."""
    names = (name for name in root if not OmegaConf.is_interpolation(root, name))
    groups = [root[name] for name in names if OmegaConf.is_dict(root[name])]
    return any(group.get("position") == "learned" for group in groups)


RESOLVERS: dict[str, Callable[[Any], object] | Callable[[Any, Any], object] | Callable[[Any, Any, Any], object]] = {
    "train_tasks": lambda size: round((size**2 - 1) * 57 / 80) if numbers_of(size) else 0,  # as in a 9 x 9 room
    "where_random": lambda split, number: number if split == "random" else 0,  # others determine the remaining tasks
    "least_success": lambda source: 0.5 if _kind(source).learns else 0.0,  # filtered if they learn
    "life": _life,
    "recorded": _recorded,
    "first_of": lambda names: names[0] if isinstance(names, ListConfig) and names else names,  # of one or several
    "episodes": _episodes,
    "development": lambda number: max(1, min(_DEVELOPMENT, number // 3)) if numbers_of(number) else _DEVELOPMENT,
    "room_context": lambda _root_: 160 if _learns_positions(_root_) else 400,
    # Learned positions need all steps of a context; else a window of stage two may be shorter (0: it is the context).
    "room_window": lambda size, _root_: 160 if numbers_of(size) and size > 160 and not _learns_positions(_root_) else 0,
}
