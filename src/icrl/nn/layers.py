"""Hidden layers of a network, as a configuration writes them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from icrl.contracts import ConfigError

_MOST, _MOST_LAYERS = 2**14, 1000  # of a width or a repeat, and of layers: memory holds no more
_CHOICES = {"normalization": ("none", "layer", "batch"), "activation": ("relu", "tanh", "gelu")}


@dataclass(frozen=True)
class Layer:
    """A linear layer with what follows it; or with `residual` a block of two, added to what the block is given."""

    width: int
    normalization: str = "none"
    activation: str = "relu"
    residual: bool = False


def read_net_arch(key: str, written: Any) -> list[Layer]:
    """The layers that `written`, a list of mappings, describes, each as often as its `repeat` says.

    An item is a layer, with a `width`, or `{net_arch: [...], repeat: k}`. Raises `ConfigError` that names `key`, the
    place in the list, what is there and what is allowed."""
    if not isinstance(written, list):
        raise ConfigError(f"{key}={written}: must be a list of layers")
    layers: list[Layer] = []
    for i, item in enumerate(written):
        where = f"{key}[{i}]"
        if not isinstance(item, Mapping):
            raise ConfigError(f"{where}={item}: must be a mapping such as {{width: 64}}")
        parts = dict(item)
        repeat = _positive(f"{where}.repeat", parts.pop("repeat", 1))
        if "net_arch" in parts:
            own = read_net_arch(f"{where}.net_arch", parts.pop("net_arch"))
            _check_keys(where, parts, ("net_arch", "repeat"))
        else:
            own = [_layer(where, parts)]
        if len(layers) + len(own) * repeat > _MOST_LAYERS:
            raise ConfigError(f"{where}={item}: makes more than {_MOST_LAYERS} layers, the most there may be")
        layers += own * repeat
    return layers


def _layer(where: str, parts: dict[str, Any]) -> Layer:
    names = [field.name for field in fields(Layer)]
    _check_keys(where, {key: value for key, value in parts.items() if key not in names}, (*names, "repeat", "net_arch"))
    if "width" not in parts:
        raise ConfigError(f"{where}.width is missing: a layer is {', '.join(names)}")
    for key, choices in _CHOICES.items():
        if key in parts and parts[key] not in choices:
            raise ConfigError(f"{where}.{key}={parts[key]}: must be one of {', '.join(choices)}")
    if not isinstance(parts.get("residual", False), bool):
        raise ConfigError(f"{where}.residual={parts['residual']}: must be true or false")
    return replace(Layer(_positive(f"{where}.width", parts["width"])), **parts)


def _check_keys(where: str, unknown: Mapping[Any, Any], allowed: tuple[str, ...]) -> None:
    if unknown:
        raise ConfigError(f"{where}.{next(iter(unknown))}: unknown key, must be one of {', '.join(allowed)}")


def _positive(key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST:
        raise ConfigError(f"{key}={value}: must be an int >= 1 and <= {_MOST}")
    return value
