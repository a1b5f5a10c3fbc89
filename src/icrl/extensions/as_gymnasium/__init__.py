"""Extension: tensor worlds as Gymnasium environments, with ids such as `icrl/DarkRoom-v0`.

A world is imported only when it is made. Other extensions register their worlds with `register`.
"""

from typing import Any

import gymnasium

NEEDS = ("maps",)

_ROOM = {"name": "dark_room", "size": 9, "random_start": False, "terminate_on_goal": True, "permute_actions": False}
MAKES = "icrl.extensions.as_gymnasium.environments"

Ids = dict[str, tuple[str, int, dict[str, Any]]]
# Module, steps of an episode, and options of the world; every option is a keyword argument of `gymnasium.make`.
_IDS: Ids = {
    "DarkRoom": (MAKES, 20, _ROOM),
    "DarkRoomClassic": (MAKES, 20, {**_ROOM, "terminate_on_goal": False}),
    "DarkRoomHard": (MAKES, 20, {**_ROOM, "size": 17}),
    "DarkRoomPermuted": (MAKES, 20, {**_ROOM, "permute_actions": True}),
}


def register(ids: Ids) -> None:
    """Make worlds known to `gymnasium.make` and `gymnasium.make_vec`.

    The time limit belongs to Gymnasium's spec and is not an argument here. `make` wraps the single environment, which
    then has no clock of its own, in `TimeLimit`; `make_vec` passes the limit to the batched environment, which counts
    itself. So exactly one clock runs, and `make(..., max_episode_steps=n)` means n, even above the registered limit."""
    for name, (module, limit, options) in ids.items():
        points = {"entry_point": f"{module}:make_single", "vector_entry_point": f"{module}:make_batched"}
        gymnasium.register(f"icrl/{name}-v0", max_episode_steps=limit, kwargs=options, **points)


register(_IDS)
