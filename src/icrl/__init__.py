"""In-context reinforcement learning, from source agents to a frozen model that learns from its context.

Public front, all in `icrl.api`: `train`, `finetune`, `load`, `make_env`, `rollout`, `evaluate`, `open_histories`, and
the decorators of what one adds: `world`, `source`, `objective`, `encoder`, `trunk`. The rest may change. Importing this
package also registers `icrl/DarkRoom-v0` and the other worlds of extensions with Gymnasium; it does not import PyTorch.
"""
# ruff: noqa: F403, F405 - checkers of types find the front in `icrl.api`

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from icrl import extensions

# By default OpenMP's threads spin while they wait for each other. Where another program holds a core, that makes two
# threads 10 to 20 times slower than one; spinning for a short while only costs 5 % where none does. PyTorch reads the
# variable when it is imported, so it is set before that.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

if TYPE_CHECKING:
    from icrl.api import *

__all__ = [
    "InContextPolicy",
    "encoder",
    "evaluate",
    "finetune",
    "load",
    "make_env",
    "objective",
    "open_histories",
    "rollout",
    "source",
    "train",
    "trunk",
    "world",
]
__version__ = "0.9.0.dev0"  # pyproject.toml reads it here


def __getattr__(name: str) -> Any:
    """Import the public front when it is first used, so that `import icrl` stays quick."""
    if name in __all__:
        return getattr(import_module("icrl.api"), name)
    raise AttributeError(f"module 'icrl' has no attribute {name!r}; public are {', '.join(__all__)}")


extensions.load_light()
