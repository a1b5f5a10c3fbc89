"""Shortest ways in levels of MiniGrid, for an expert that knows the mission.

Needs MiniGrid: `pip install minigrid`. W x H cells, 4 headings: right, down, left, up.
"""

from functools import lru_cache
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

_HEADINGS = ((1, 0), (0, 1), (-1, 0), (0, -1))
_LEFT, _RIGHT, _FORWARD, _PICKUP, _DROP, _TOGGLE, _DONE = range(7)  # MiniGrid's actions


class ShortestWay(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper of a level in which one goes to a door, fetches an object or goes to a goal without opening doors.

    `info["expert_action"]` is the first action of a shortest way there, given the whole level and the mission; any
    action if there is no way."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._actions = np.zeros((0, 0, 4), np.int64)  # in each cell and heading

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**given)
        return obs, self._with_action(info, changed=True)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        changed = int(action) in (_PICKUP, _DROP, _TOGGLE)
        return obs, reward, terminated, truncated, self._with_action(info, changed)

    def _with_action(self, info: dict[str, Any], changed: bool) -> dict[str, Any]:
        level: Any = self.env.unwrapped
        if changed:
            self._actions = _actions_of(level)
        column, row = level.agent_pos
        return info | {"expert_action": int(self._actions[column, row, level.agent_dir])}


def first_actions(free: NDArray[np.bool_], ready: NDArray[np.bool_], last: int) -> NDArray[np.int64]:
    """First action of a shortest way from each cell and heading `[W, H, 4]`, over `free` cells `[W, H]` whose border is
    not free, to one that is `ready` `[W, H, 4]` for the action `last`."""
    distance = np.where(ready, 0.0, np.inf)
    while True:
        turned = [np.roll(distance, shift, axis=2) for shift in (1, -1)]  # to the left, to the right
        ahead = np.full_like(distance, np.inf)
        for heading, (right, down) in enumerate(_HEADINGS):
            moved = np.roll(np.where(free, distance[:, :, heading], np.inf), (-right, -down), axis=(0, 1))
            ahead[:, :, heading] = moved
        ways = np.stack([*turned, ahead])
        shorter = np.minimum(distance, 1 + ways.min(0))
        if np.array_equal(shorter, distance):
            return np.where(ready, last, ways.argmin(0))
        distance = shorter


def _actions_of(level: Any) -> NDArray[np.int64]:
    """First actions `[W, H, 4]` in a level; those of levels seen before are remembered, because a level is the same in
    all episodes of its task."""
    kind = (getattr(level, "targetType", "goal"), getattr(level, "targetColor", "green"))
    door = getattr(level, "target_pos", None)
    return _actions_in(level.grid.encode().tobytes(), (level.width, level.height), kind, door and tuple(door))


@lru_cache(maxsize=10_000)
def _actions_in(
    encoded: bytes, size: tuple[int, int], kind: tuple[str, str], door: tuple[int, int] | None
) -> NDArray[np.int64]:
    """`_actions_of` the level with the encoded cells `[W, H, 3]`: kind, colour and state of the thing there."""
    thing, colour, state = np.moveaxis(np.frombuffer(encoded, np.uint8).reshape(*size, 3), 2, 0)
    codes = import_module("minigrid.core.constants")
    number = codes.OBJECT_TO_IDX
    opened = (thing == number["door"]) & (state == codes.STATE_TO_IDX["open"])
    free = (thing == number["empty"]) | (thing == number["floor"]) | opened
    target, last = (thing == number[kind[0]]) & (colour == codes.COLOR_TO_IDX[kind[1]]), _FORWARD
    if door is not None:
        target, last = np.zeros(size, np.bool_), _DONE
        target[door] = True
    elif kind[0] != "goal":
        last = _PICKUP
    facing = np.stack([np.roll(target, (-right, -down), axis=(0, 1)) for right, down in _HEADINGS], axis=2)
    if last == _DONE:
        facing = facing | facing.any(2, keepdims=True)  # beside a door any heading will do
    return first_actions(free, facing & free[:, :, None], last)
