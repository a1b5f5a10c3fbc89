"""Spaces of an environment, as tensors and in JSON, and what else of it a model or a source needs.

Spaces are Gymnasium's. Worlds, stores, models and sources ask them, not the name of a world.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space
from torch import Tensor


class EnvSpec(NamedTuple):
    """Spaces of an environment and what else a model or a source needs of it.

    With `action_mask` an observation is integers or a vector that ends with a flag for each action, 1 where it is
    legal. In the point game alone, `points` = (N, n): an observation is N points of n coordinates, each stored as the
    coordinate plus one and 0 for no point, then n flags and those of the actions.
    """

    observation_space: Space[Any]  # Discrete, MultiDiscrete, Box of float32, or Box of uint8 [height, width, channels]
    action_space: Space[Any]  # Discrete, MultiDiscrete, or Box of float32 with bounds
    reward_values: tuple[float, ...]  # all rewards, if they can be listed; else ()
    width: int  # an observation is (layer * width + row) * width + column; 0: the world is not a square room
    max_episode_steps: int
    success: str = "reward"  # rule that makes an episode a success, see `envs.rollout.is_success`
    points: tuple[int, int] = (0, 0)
    success_return: float = 0.0  # least return of a successful episode, or least last reward, if `success` says so
    action_mask: bool = False  # whether observations end with flags of legal actions

    @classmethod
    def of(cls, recorded: dict[str, Any]) -> "EnvSpec":
        """Spec from a manifest or a checkpoint: as `to_json` wrote it, or a version that knew integers alone."""
        values: Any = {name: tuple(value) if isinstance(value, list) else value for name, value in recorded.items()}
        if "num_obs" in recorded:
            return discrete_spec(**values)
        return cls(**values | {name: read_space(recorded[name]) for name in _SPACES})

    def to_json(self) -> dict[str, Any]:
        written = self._asdict() | {name: written_space(getattr(self, name)) for name in _SPACES}
        return {name: value for name, value in written.items() if name != "action_mask" or value}  # keeps checksums

    @property
    def obs_shape(self) -> tuple[int, ...]:
        return self.observation_space.shape or ()

    @property
    def action_shape(self) -> tuple[int, ...]:
        return self.action_space.shape or ()

    @property
    def obs_dtype(self) -> torch.dtype:
        """int64 of integers, float32 of vectors, uint8 of images."""
        return tensor_dtype(self.observation_space)

    @property
    def action_dtype(self) -> torch.dtype:
        """int64 of integers, float32 of vectors."""
        return tensor_dtype(self.action_space)

    @property
    def num_obs(self) -> int:
        """The integers of an observation lie in [0, num_obs). Raises `TypeError` unless it consists of integers."""
        return _number("observations", self.observation_space)

    @property
    def num_actions(self) -> int:
        """An action lies in [0, num_actions). Raises `TypeError` unless it consists of integers."""
        return _number("actions", self.action_space)

    @property
    def num_rewards(self) -> int:
        return len(self.reward_values)

    @property
    def is_discrete(self) -> bool:
        """True if actions are one integer each, observations consist of integers, and rewards can be listed."""
        spaces = isinstance(self.action_space, Discrete) and not isinstance(self.observation_space, Box)
        return spaces and bool(self.reward_values)

    def reward_index(self, reward: Tensor) -> Tensor:
        """Indices of the nearest `reward_values`, int64, of the shape of `reward`."""
        return (reward[..., None] - reward_table(self.reward_values, reward.device)).abs().argmin(-1)

    def reward_of(self, index: Tensor) -> Tensor:
        """Rewards, float32, with these indices into `reward_values`."""
        table = reward_table(self.reward_values, index.device)
        return table.index_select(0, index.flatten()).view_as(index)

    def unknown_action(self, like: Tensor) -> Tensor:
        """Stand-in for an unknown optimal action, `[B, *action_shape]` for `like` `[B, ...]`: num_actions, or NaN."""
        box = isinstance(self.action_space, Box)
        filling = math.nan if box else self.num_actions
        return torch.full((len(like), *self.action_shape), filling, dtype=self.action_dtype, device=like.device)

    def is_unknown(self, action: np.ndarray) -> np.ndarray:
        """Mask of the optimal actions that are unknown, of the shape of `action`."""
        return np.isnan(action) if isinstance(self.action_space, Box) else action == self.num_actions

    @property
    def plain_space(self) -> Space[Any]:
        """Space of observations without the flags of `action_mask`; one integer is Discrete then."""
        space, number = self.observation_space, self.num_actions if self.action_mask else 0
        if isinstance(space, Box) and number:
            return Box(space.low[:-number], space.high[:-number])
        if isinstance(space, MultiDiscrete) and number:
            sizes = space.nvec[:-number].tolist()
            return MultiDiscrete(sizes) if len(sizes) > 1 else Discrete(sizes[0])
        return space

    def plain(self, obs: Tensor) -> Tensor:
        """Observations `[..., *obs_shape]` as elements of `plain_space`."""
        if not self.action_mask:
            return obs
        one_integer = isinstance(self.observation_space, MultiDiscrete) and obs.shape[-1] == 1 + self.num_actions
        return obs[..., 0] if one_integer else obs[..., : -self.num_actions]

    @property
    def has_flags(self) -> bool:
        """True if observations end with flags of legal actions."""
        return self.action_mask or bool(self.points[0])

    def legal(self, obs: Tensor) -> Tensor | None:
        """Legal actions for observations `[..., K]`, `[..., A]` bool; None if all actions are always legal."""
        return obs[..., -self.num_actions :] > 0 if self.has_flags else None

    def legal_of(self, values: Tensor, obs: Tensor, otherwise: float = -math.inf) -> Tensor:
        """`values` `[..., A]` of actions for observations `[..., K]`, with `otherwise` for illegal actions."""
        legal = self.legal(obs)
        return values if legal is None else values.masked_fill(~legal, otherwise)


def discrete_spec(
    num_obs: int,
    num_actions: int,
    reward_values: tuple[float, ...],
    width: int,
    max_episode_steps: int,
    success: str = "reward",
    points: tuple[int, int] = (0, 0),
    success_return: float = 0.0,
) -> EnvSpec:
    """Spec of a world of integers: one for an action, one for an observation, or a set of points; see `EnvSpec`."""
    rows, dimension = points
    obs = MultiDiscrete([num_obs] * ((rows + 1) * dimension + num_actions)) if rows else Discrete(num_obs)
    about = (width, max_episode_steps, success, points, success_return)
    return EnvSpec(obs, Discrete(num_actions), reward_values, *about)


def is_image(space: Space[Any]) -> bool:
    """True for a space of images `[height, width, channels]`."""
    return str(space.dtype) == "uint8" and len(space.shape or ()) == 3


def num_channels(space: Space[Any]) -> int:
    """Numbers of an observation that have a mean and a deviation of their own: its channels, if it is an image."""
    shape = space.shape or ()
    return shape[-1] if is_image(space) else math.prod(shape)


_MOST_NUMBERS = 10**7  # of a Box
_SPACES = ("observation_space", "action_space")
_DTYPES = {"float32": torch.float32, "uint8": torch.uint8, "int64": torch.int64}


def tensor_dtype(space: Space[Any]) -> torch.dtype:
    """dtype of the elements of a space in tensors: that of a `Box`, else int64. Raises `TypeError` for other Boxes."""
    if not isinstance(space, Box):
        return torch.int64
    if (dtype := _DTYPES.get(str(space.dtype))) is None:
        raise TypeError(f"{space} has the dtype {space.dtype}: must be one of {', '.join(_DTYPES)}")
    return dtype


def _number(what: str, space: Space[Any]) -> int:
    if isinstance(space, Discrete):
        return int(space.n)
    if isinstance(space, MultiDiscrete):
        return int(space.nvec.max())
    raise TypeError(f"{what} {space} are not integers that can be counted")


@cache
def reward_table(values: tuple[float, ...], device: torch.device) -> Tensor:
    """`values` as float32 on `device`."""
    return torch.tensor(values, dtype=torch.float32, device=device)


def written_space(space: Space[Any]) -> dict[str, Any]:
    """A space in JSON. Bounds of a Box are a number, or a list of numbers; None: there is none."""
    match space:
        case Discrete() if not space.start:
            return {"type": "Discrete", "n": int(space.n)}
        case MultiDiscrete() if not space.start.any():
            return {"type": "MultiDiscrete", "nvec": space.nvec.tolist()}
        case Box():
            bounds = {name: _written_bound(getattr(space, name)) for name in ("low", "high")}
            return {"type": "Box", **bounds, "shape": list(space.shape), "dtype": str(space.dtype)}
    raise TypeError(f"{space} must be Discrete or MultiDiscrete from 0, or a Box")


def read_space(written: dict[str, Any]) -> Space[Any]:
    """The space that `written_space` wrote. Raises errors of many types for anything else."""
    match written["type"]:
        case "Discrete":
            return Discrete(written["n"])
        case "MultiDiscrete":
            return MultiDiscrete(written["nvec"])
    shape, dtype = tuple(written["shape"]), np.dtype(written["dtype"]).type
    if math.prod(shape) > _MOST_NUMBERS:  # a file may say anything, and each takes memory here
        raise ValueError(f"a Box of shape {shape} has more than {_MOST_NUMBERS} numbers")
    ends = ((written["low"], -math.inf), (written["high"], math.inf))
    low, high = (_read_bound(bound, infinite, shape, dtype) for bound, infinite in ends)
    return Box(low, high, shape, dtype)


def _written_bound(bound: Any) -> Any:
    flat = [float(number) if math.isfinite(number) else None for number in bound.ravel()]
    return flat[0] if len(set(flat)) == 1 else flat


def _read_bound(written: Any, infinite: float, shape: tuple[int, ...], dtype: Any) -> Any:
    flat = written if isinstance(written, list) else [written] * math.prod(shape)
    return np.array([infinite if number is None else number for number in flat], dtype).reshape(shape)


_SHARED = {"width": int, "max_episode_steps": int, "reward_values": [float], "success": str, "points": [int]}
SPEC_FORM = (  # forms of an `EnvSpec` in JSON, as `files.has_form` takes them: of this version, and of older ones
    _SHARED | {name: {"type": str} for name in _SPACES},
    _SHARED | {"num_obs": int, "num_actions": int},
)
