"""In-context reinforcement learning, from source agents to a frozen model that learns from its context.

Importing this package registers `icrl/DarkRoom-v0` and the other worlds with Gymnasium; it does not import PyTorch.
"""

import os

# By default OpenMP's threads spin while they wait for each other. Where another program holds a core, that makes two
# threads 10 to 20 times slower than one; spinning for a short while only costs 5 % where none does. PyTorch reads the
# variable when it is imported, so it is set before that.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

from icrl.envs.gym.ids import register_all

register_all()
