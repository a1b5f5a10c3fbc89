"""Imported once by the process whose forks are all processes that tests start, whichever test starts the first one.

All cores are busy in a run of the tests, so that a process at the lowest priority would hardly ever do its work: here
it notes that it asked for this, and has the priority of the others.
"""

import importlib
import os

import harness  # noqa: F401
import torch._dynamo  # noqa: F401

from icrl import extensions

if "from_gymnasium" in extensions.NAMES:
    importlib.import_module("toy_env")

_asked = [0]


def _nice(increment: int) -> int:
    _asked[0] += increment
    return _asked[0]


os.nice = _nice
os.sched_setscheduler = lambda *_: None
