"""The fast paths of stages two and three beside the plain ones, and the share of their floor that an update reaches.

    python -m benchmarks.recipe

On one thread. Updates: the default recipe, the same in float32, and the former recipe (`experiment=four_layers`), on
random windows. The floor of an update is its multiplications in linear layers and attention, forward and backward, at
the rate of a large product in the same dtype. Rollout: steps per second of 23 x 20 streams over 320 steps in DarkRoom,
all at once and 100 at a time, as `evaluate` plays them; floors are not counted.
"""

import time
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.measure import Report, side_by_side
from benchmarks.stage_two import updates
from icrl.app.compose import load_config
from icrl.app.root import Config
from icrl.envs import make_env
from icrl.evaluation.in_context import play_steps
from icrl.nn.gpt import GPT
from icrl.nn.gpt_policy import GPTPolicy

UPDATES, ROUNDS, STEPS, STREAMS = 5, 5, 320, 20
RECIPES = {
    "default": ["device.amp_dtype=bfloat16"],
    "default in float32": ["device.amp_dtype=none"],
    "four layers": ["experiment=four_layers"],
}


def operations(config: Config) -> float:
    """Floating-point operations of an update: twice the multiplications forward, and twice that backward."""
    model, windows = config.model, config.trainer.mini_batch_size
    linear = 4 * model.embed_dim**2 + 2 * model.embed_dim * model.ff_dim
    attention = 2 * model.context_len * model.embed_dim  # all pairs of steps: half of them are masked
    return 3 * 2 * model.num_layers * (linear + attention) * windows * model.context_len


def product_rate(dtype: torch.dtype) -> float:
    """Operations per second of a product of the size of a feed-forward layer, the best of 50."""
    one, two = torch.ones(5120, 64, dtype=dtype), torch.ones(64, 256, dtype=dtype)
    fastest = float("inf")
    for _ in range(50):
        start = time.perf_counter()
        torch.mm(one, two)
        fastest = min(fastest, time.perf_counter() - start)
    return 2 * 5120 * 64 * 256 / fastest


def rollout(config: Config, at_a_time: int) -> int:
    env = make_env(config.env)
    kept = config.policy.context_kept
    policy, tasks = GPTPolicy(GPT(config.model, env.spec), 1.0, 1.0, kept), env.all_tasks()[:23]
    for part in tasks.split(at_a_time):
        play_steps(policy, env, part, STREAMS, STEPS, 0)
    return len(tasks) * STREAMS * STEPS


def main() -> None:
    torch.set_num_threads(1)
    report, configs = Report("recipe"), {name: load_config(given) for name, given in RECIPES.items()}
    products = {dtype: product_rate(dtype) for dtype in (torch.float32, torch.bfloat16)}
    named = {str(dtype).removeprefix("torch."): rate / 1e9 for dtype, rate in products.items()}
    report.show("Large products", named, "GFLOP", "float32")
    ways, floors = dict[str, Callable[[], int]](), dict[str, float]()
    for name, config in configs.items():
        ways[name] = updates(config, UPDATES)
        dtype = torch.bfloat16 if config.device.amp_dtype == "bfloat16" else torch.float32
        floors[name] = products[dtype] / operations(config)
    report.show("Update", side_by_side(ways, ROUNDS), "update", "four layers", floors)
    plays = {
        f"{name}, {tasks * STREAMS} streams at a time": partial(rollout, configs[name], tasks)
        for name, tasks in (("default", 5), ("default", 23), ("four layers", 23))
    }
    rates = side_by_side(plays, 2, time.process_time)
    report.show("Rollout", rates, "step", "four layers, 460 streams at a time")


if __name__ == "__main__":
    main()
