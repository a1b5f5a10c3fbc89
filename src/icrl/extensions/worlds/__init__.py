"""Extension: Key-to-Door, bandits and random MDPs as tensor functions, and policies from theory that learn in them
(`learners`)."""

from typing import Any

from icrl import extensions

NEEDS = ("exact",)
_BANDIT = {"name": "bandit", "num_arms": 10, "num_tasks": 1100, "num_contexts": 1, "num_features": 0}
_MDPS = {"num_states": 16, "num_actions": 4, "num_tasks": 1100}

_IDS: dict[str, tuple[int, dict[str, Any]]] = {
    "DarkKeyToDoor": (50, {"name": "dark_key_to_door", "size": 9, "random_start": True, "show_key": False}),
    "Bandit": (1, {**_BANDIT, "distribution": "bernoulli"}),
    "BanditGaussian": (1, {**_BANDIT, "distribution": "gaussian"}),
    "BanditLinear": (1, {**_BANDIT, "distribution": "gaussian", "num_features": 2}),
    "BanditContextual": (1, {**_BANDIT, "distribution": "bernoulli", "num_arms": 5, "num_contexts": 4}),
    "Garnet": (20, {"name": "garnet", **_MDPS}),
    "AnyMDP": (20, {"name": "anymdp", **_MDPS}),
}

if "as_gymnasium" in extensions.NAMES:
    from icrl.extensions.as_gymnasium import MAKES, register

    register({name: (MAKES, *one) for name, one in _IDS.items()})
