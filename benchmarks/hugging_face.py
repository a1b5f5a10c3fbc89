"""Training and generation with the default model, beside GPT-2 of Hugging Face Transformers of the same sizes.

    python -m benchmarks.hugging_face [--one-thread] [KEY=VALUE ...]

Sizes, batch, context and streams are those of the configuration, optimizers are not. GPT-2 has a head of keys and
values for each of its heads, where ours shares one; `model.num_kv_heads=0` gives ours as many. A training update is
embedding, forward, backward, clipping and optimizer on one batch; ours is `icrl.training.updates.Updater` with its
weights and metrics. Each side may use float32 or bfloat16, and there AdamW or, for the matrices of blocks, Muon (ours
or that of PyTorch), and GPT-2 either form of attention. In generation GPT-2 reads embedded tokens, one step after the
other, into its cache, dynamic or, in bfloat16, static. Ours, in float32 but for the cache of one row, plays the world:
it also embeds, samples actions and steps, and in the row of two contexts it rebuilds the full ones.

Freed memory is kept for both sides, as in our programs. Rates on one thread are per second of processor time. Rates on
two threads are per second, so they need a machine without other work; `--one-thread` leaves them out.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product

import torch
from transformers import Cache, DynamicCache, StaticCache  # type: ignore  # needs benchmarks/requirements.txt

from benchmarks.gpt2 import GPT2, generate, gpt2_update
from benchmarks.measure import Report, fastest, side_by_side
from benchmarks.stage_two import HALFWAY, our_update, random_batch, repeated
from icrl.app.compose import load_config
from icrl.app.root import Config
from icrl.envs import make_env
from icrl.envs.tasks import split_tasks
from icrl.evaluation.in_context import play_steps
from icrl.nn.gpt import GPT
from icrl.nn.gpt_policy import GPTPolicy
from icrl.runs.device import keep_freed_memory
from icrl.spaces import EnvSpec

UPDATES, ATTENTIONS = 3, ("eager", "sdpa")
CLOCKS = {1: time.process_time, 2: time.perf_counter}  # by the number of threads
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
PEER, OURS = "GPT-2", "ours"
Ways = dict[str, Callable[[], int]]


def updates(overrides: list[str], spec: EnvSpec) -> Ways:
    """Updates of each side, in each dtype, and in bfloat16 with each optimizer."""
    ways = Ways()
    for dtype, optimizer in (*product(DTYPES, ("adamw",)), ("bfloat16", "muon")):
        precision = f"device.amp_dtype={'none' if dtype == 'float32' else dtype}"
        config = load_config([*overrides, f"optimizer={optimizer}", precision])
        batch, how = random_batch(config, spec), {"bfloat16": dtype == "bfloat16", "muon": optimizer == "muon"}
        sides = {f"{OURS}, {dtype}, {optimizer}": our_update(config, spec, batch)}
        for attention in ATTENTIONS:
            peer = gpt2_update(config, spec, attention, batch, HALFWAY, **how)
            sides[f"{PEER}, {attention}, {dtype}, {optimizer}"] = peer
        ways |= {name: partial(repeated, update, UPDATES) for name, update in sides.items()}
    return ways


def generations(config: Config) -> Ways:
    """Generation of each side through one context; ours through two contexts too."""
    env, context, per_task = make_env(config.env), config.model.context_len, config.evaluation.num_streams
    tasks = env.all_tasks()[split_tasks(env, config).held_out]
    exact, rounded = (GPT(config.model, env.spec) for _ in range(2))
    rounded.cache_dtype = torch.bfloat16  # as in trials

    def played(model: GPT, num_steps: int) -> int:
        policy = GPTPolicy(model, 1.0, config.policy.temperature, config.policy.context_kept)
        return play_steps(policy, env, tasks, per_task, num_steps, 0).obs.numel()

    ways: Ways = {
        f"{OURS}, one context": partial(played, exact, context),
        f"{OURS}, one context, cache in bfloat16": partial(played, rounded, context),
        f"{OURS}, two contexts": partial(played, exact, 2 * context),
    }
    for attention, (name, dtype) in product(ATTENTIONS, DTYPES.items()):
        model = GPT2(config, env.spec, attention).to(dtype).eval()
        caches: dict[str, Callable[[], Cache]] = {"dynamic cache": partial(DynamicCache, config=model.options)}
        if dtype == torch.bfloat16:
            caches["static cache"] = partial(StaticCache, model.options, model.options.n_positions)
        for kind, make_cache in caches.items():
            work = partial(generate, model, make_cache, len(tasks) * per_task, context)
            ways[f"{PEER}, {attention}, {name}, {kind}"] = work
    return ways


def main(arguments: list[str]) -> None:
    keep_freed_memory()
    overrides = [part for part in arguments if part != "--one-thread"]
    report, config = Report("hugging_face", overrides), load_config(overrides)
    model, size = config.model, config.trainer.mini_batch_size
    sizes = f"{model.num_layers} layers, {model.num_heads} heads, context {model.context_len}"
    sides = updates(overrides, make_env(config.env).spec), generations(config)
    for (threads, clock), (what, unit, rounds, ways) in product(
        CLOCKS.items(),
        ((f"Update of {size} windows", "update", 20, sides[0]), ("Generation", "env step", 4, sides[1])),
    ):
        if threads == 1 or "--one-thread" not in arguments:
            torch.set_num_threads(threads)
            rates = side_by_side(ways, rounds, clock)
            report.show(f"{what}, {sizes}, threads: {threads}", rates, unit, fastest(rates, PEER))


if __name__ == "__main__":
    main(sys.argv[1:])
