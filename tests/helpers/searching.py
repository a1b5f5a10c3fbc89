"""The source of searchers."""

from typing import Any

from probes import CPU, START

from icrl.app.compose import load_config
from icrl.envs import make_env
from icrl.extensions.searchers.searcher import Searcher
from icrl.randomness import stream_seeds


def searcher_in(*options: str, noise: str = "0.3") -> tuple[Searcher, Any]:
    config: Any = load_config(["source=searcher", f"source.noise={noise}", *options])
    env = make_env(config.env)
    learner = Searcher.create(config, env, env.all_tasks()[:1], stream_seeds(0, 1), CPU)
    learner.set_clock(START)
    return learner, env
