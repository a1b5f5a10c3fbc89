"""Training objectives of stage two: (model, batch) -> terms of the loss, metrics.

To add one, write a class with the methods of `contracts.Objective` and the decorator `@objective(name, options)`, in a
file that `module=` names.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from icrl.config.modules import load_plugins, registrar

if TYPE_CHECKING:
    from icrl.app.root import Config
    from icrl.data.lives import Labels
    from icrl.objectives.imitation import ObjectiveConfig
    from icrl.spaces import EnvSpec

    LabelsMaker = Callable[[str, Config, EnvSpec], Labels]

_CLASSES: dict[str, Any] = {}  # by `objective.name`
_LABELS: dict[str, LabelsMaker] = {}  # by `objective.labels`, beside `planner`


def objective(name: str, options: type[ObjectiveConfig]) -> Callable[[Any], Any]:
    """Decorator of the class of an objective that `objective=name` chooses. It is constructed with its options, of the
    class `options`, the spec of the world and the model's head. Raises `ConfigError` if another has this name."""
    return registrar("objective", name, _CLASSES, options)


def objective_class(name: str) -> Any:
    """Class of the objective `name`, one of `objective_options`."""
    return _CLASSES[name]


def objective_options() -> dict[str, type[ObjectiveConfig]]:
    """Class of the options of each objective, by `objective.name`."""
    import_module("icrl.objectives.imitation")
    load_plugins()
    return {name: made.options for name, made in _CLASSES.items()}


def labels(*names: str) -> Callable[[LabelsMaker], LabelsMaker]:
    """Decorator of a function that makes labels of histories in a world with a spec, for these values of
    `objective.labels`: the best actions for `objective=dpt`, in place of those of the planner."""

    def register(maker: LabelsMaker) -> LabelsMaker:
        _LABELS.update(dict.fromkeys(names, maker))
        return maker

    return register


def labels_makers() -> dict[str, LabelsMaker]:
    """Functions that make labels, by `objective.labels`."""
    load_plugins()
    return _LABELS
