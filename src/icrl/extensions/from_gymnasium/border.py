"""Border between Gymnasium's environments and tensors: spaces, observations and actions, checked and converted.

Vectors of any number type become float32; uint8 images stay as they are; integers become int64. Actions are clipped to
the bounds of their Box, as rounding to float32 may leave them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Space

from icrl.spaces import EnvSpec

_FORMS = "must be Discrete or MultiDiscrete from 0, a Box with one axis, or a uint8 Box [height, width, channels]"
_ACTIONS = "must be Discrete or MultiDiscrete from 0, or a Box of floats with one axis and finite bounds"


def obs_space(space: Space[Any], wrappers: Sequence[str] = ()) -> Space[Any]:
    """Space of a spec for the observations in `space`. Raises `ValueError` that says what is allowed, and which wrapper
    helps around those that there are."""
    if integers := _integers(space):
        return integers
    if isinstance(space, Box) and space.dtype == np.uint8 and len(space.shape) == 3:
        return Box(space.low, space.high, dtype=np.uint8)
    if isinstance(space, Box) and space.dtype != np.bool_ and len(space.shape) == 1:
        return _floats(space)
    raise ValueError(f"observations {space} {_FORMS}: {_remedy(space, wrappers)}")


def action_space(space: Space[Any]) -> Space[Any]:
    """Space of a spec for the actions in `space`. Raises `ValueError` that says what is allowed."""
    if integers := _integers(space):
        return integers
    if isinstance(space, Box) and np.issubdtype(space.dtype, np.floating) and len(space.shape) == 1:
        if space.is_bounded():
            return _floats(space)
        raise ValueError(f"actions {space} {_ACTIONS}: env.wrappers may have a wrapper of your own that bounds them")
    raise ValueError(f"actions {space} {_ACTIONS}")


def described(obs: Space[Any], action: Space[Any]) -> str:
    """Words for both spaces."""
    spaces = {"observations": obs, "actions": action}
    words = (
        f"{space.n} {name}" if isinstance(space, Discrete) else f"{name} {space}" for name, space in spaces.items()
    )
    return " and ".join(words)


def read_obs(obs: Any, space: Space[Any]) -> Any:
    """An environment's observation as an element of the spec's `space`: an int, or an array of its own. Raises
    `ValueError` if it is not in the space, or has numbers that are not finite. The bounds of vectors are not checked,
    because environments leave them."""
    if isinstance(space, Discrete):
        if not space.contains(obs):
            raise ValueError(f"its observation {obs} is not in {space}")
        return int(obs)
    numbers = np.array(obs)
    if isinstance(space, MultiDiscrete):
        fits = numbers.shape == space.shape and bool(((numbers >= 0) & (numbers < space.nvec)).all())
    elif space.dtype == np.uint8:
        fits = numbers.shape == space.shape and numbers.dtype == np.uint8
    else:
        numbers = numbers.astype(np.float32, copy=False)
        fits = numbers.shape == space.shape and bool(np.isfinite(numbers).all())
    if not fits:
        raise ValueError(f"its observation {obs} is not in {space}, or not finite")
    return numbers


def read_expert(info: Mapping[str, Any], spec: EnvSpec, obs: Any) -> Any:
    """Action of the expert, `info["expert_action"]`, as an element of the spec's space, after the observation `obs`.
    Raises `ValueError` if it is missing or no legal action; that of a Box is clipped to its bounds."""
    given, space = info.get("expert_action", "missing"), spec.action_space
    try:
        action = write_action(given, space)
        fits = space.contains(action)
    except (TypeError, ValueError):
        fits, action = False, None
    if not fits:
        raise ValueError(f"env.expert: info['expert_action'] is {given}: must be an action in {space}")
    if spec.action_mask and not obs[-spec.num_actions :][action]:
        raise ValueError(f"env.expert: info['expert_action'] is {given}, which info['action_mask'] forbids")
    return action


def write_action(action: Any, space: Space[Any]) -> Any:
    """A policy's action, an int or an array, as an element of the environment's own `space`."""
    if isinstance(space, Discrete):
        return int(action)
    if isinstance(space, Box):
        if not np.isfinite(action).all():
            raise ValueError(f"the action {action} is not finite")
        action = np.clip(action, space.low, space.high)
    return np.array(action, space.dtype)


def rows_of(column: torch.Tensor) -> list[Any]:
    """Elements of a column `[B, ...]` for one stream after the other: ints, or arrays."""
    return column.tolist() if column.dim() == 1 else list(column.cpu().numpy())


def _remedy(space: Space[Any], wrappers: Sequence[str]) -> str:
    """Words for the wrapper that makes observations in `space` ones that a spec can hold."""
    if _flattens(space):
        name, how = "FlattenObservation", "makes a vector of them"
    elif isinstance(space, Dict) and isinstance(space.get("image"), Box):  # of MiniGrid, where a text stands beside it
        name, how = "minigrid.wrappers:ImgObsWrapper", "keeps the image alone"
    else:
        return "no wrapper of Gymnasium makes a vector of them, so env.wrappers needs one of your own"
    return f"give env.wrappers=[{','.join([*wrappers, name])}], which {how}"


def _flattens(space: Space[Any]) -> bool:
    """True if Gymnasium can make a vector of an element."""
    try:
        return space.is_np_flattenable
    except (NotImplementedError, AttributeError):  # a space from outside need not say so, or be one
        return False


def _integers(space: Space[Any]) -> Space[Any] | None:
    """The space itself, if it consists of one integer from 0, or of several of them."""
    if isinstance(space, Discrete) and space.start == 0:
        return Discrete(int(space.n))
    if isinstance(space, MultiDiscrete) and len(space.shape) == 1 and not space.start.any():
        return MultiDiscrete(space.nvec.tolist())
    return None


def _floats(space: Box) -> Box:
    with np.errstate(over="ignore"):  # bounds above those of float32 are none
        return Box(space.low.astype(np.float32), space.high.astype(np.float32))
