"""Trunks and caches side by side: an update, steps in context, and the memory of a stream.

    python -m benchmarks.extensions.recurrent.trunks

On one thread, with the default recipe, on random windows and in DarkRoom over 320 steps (two contexts). The actor of
trials has its cache in bfloat16. The success of each trunk: `python -m src.study study=trunk`.
"""

import time
from functools import partial

import torch

from benchmarks.measure import Report, side_by_side
from benchmarks.recipe import STEPS, UPDATES
from benchmarks.stage_two import updates
from icrl.app.compose import load_config
from icrl.app.root import Config
from icrl.envs import make_env
from icrl.evaluation.in_context import play_steps
from icrl.nn.gpt import GPT
from icrl.nn.gpt_policy import GPTPolicy

BASELINE, HALF = "attention, shared keys and values", "the same, cache in bfloat16"
TRUNKS: dict[str, list[str]] = {
    BASELINE: [],
    "attention, 2 heads": ["model.num_kv_heads=0"],
    "gated delta rule, 2 heads": ["model.trunk=delta"],
    "gated delta rule, 1 head": ["model.trunk=delta", "model.num_heads=1"],
    "GRU": ["model.trunk=gru"],
}
STREAMS = ((23, 2), (5, 20), (23, 20))  # tasks, streams of each


class HalfGPT(GPT):
    """Model whose cache is in bfloat16."""

    cache_dtype = torch.bfloat16


def rollout(config: Config, form: type[GPT], num_tasks: int, num_streams: int) -> int:
    env = make_env(config.env)
    policy = GPTPolicy(form(config.model, env.spec), 1.0, 1.0, config.policy.context_kept)
    play_steps(policy, env, env.all_tasks()[:num_tasks], num_streams, STEPS, 0)
    return num_tasks * num_streams * STEPS


def bytes_of(config: Config, form: type[GPT]) -> int:
    """Bytes of the cache of one stream."""
    cache = form(config.model, make_env(config.env).spec).new_cache(1)
    return sum(column.nbytes for one in cache for column in one.columns)


def main() -> None:
    torch.set_num_threads(1)
    report = Report("extensions.recurrent.trunks")
    configs = {name: load_config([*given, "device.amp_dtype=bfloat16"]) for name, given in TRUNKS.items()}
    forms = {name: (config, GPT) for name, config in configs.items()} | {HALF: (configs[BASELINE], HalfGPT)}
    for name, form in forms.items():
        print(f"{name:<50} {bytes_of(*form):>14,} bytes a stream")
    work = {name: updates(config, UPDATES) for name, config in configs.items()}
    report.show("Update", side_by_side(work, 5, time.process_time), "update", BASELINE)
    for tasks, streams in STREAMS:
        plays = {name: partial(rollout, *form, tasks, streams) for name, form in forms.items()}
        rates = side_by_side(plays, 3, time.process_time)
        report.show(f"Rollout, {tasks * streams} streams", rates, "step", BASELINE)


if __name__ == "__main__":
    main()
