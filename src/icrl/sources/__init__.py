"""Source algorithms; one object holds all learners, batched.

To add a source, write a `Learner` with the decorator `@source(name, options)` and a preset `conf/source/<name>.yaml` in
an extension, or in a file that `module=` names.

Shapes: T steps, L learners, N environments or W windows of each, B = L * N or L * W streams (learner by learner),
S observations, A actions.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from icrl.config.modules import load_plugins, recorded_options, registrar
from icrl.config.options import refuse

if TYPE_CHECKING:
    from icrl.sources.options import SourceConfig

_CLASSES: dict[str, Any] = {}  # by `source.name`


def source(name: str, options: type[Any]) -> Callable[[Any], Any]:
    """Decorator of the class of learners that `source=name` chooses; `options` is the class of its options. Raises
    `ConfigError` if another source has this name."""
    return registrar("source", name, _CLASSES, options)


def source_class(name: str) -> Any:
    """Class of the source algorithm `name`. Raises `ConfigError` if there is none."""
    _scan()
    refuse(name not in _CLASSES, f"source.name={name} is unknown: it must be one of {', '.join(sorted(_CLASSES))}")
    return _CLASSES[name]


def source_options() -> dict[str, type[SourceConfig]]:
    """Class of the options of each source, by `source.name`, in the order of their files."""
    _scan()
    return {name: _CLASSES[name].options for name in sorted(_CLASSES, key=lambda name: _CLASSES[name].__module__)}


def _scan() -> None:
    import_module("icrl.sources.a2c")
    load_plugins()


def source_of(recorded: Any, where: object) -> SourceConfig:
    """Options of the source in the configuration that the file or folder `where` records. Raises `PipelineError` if
    they are not allowed."""
    return recorded_options(source_class(recorded["source"]["name"]).options, recorded["source"], where, "source")
