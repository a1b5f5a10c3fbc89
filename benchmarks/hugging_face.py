"""Training and generation with the default model, beside GPT-2 of Hugging Face Transformers of the same sizes.

    python -m benchmarks.hugging_face [KEY=VALUE ...]

Sizes, batch, context, streams and optimizer are those of the configuration. GPT-2 gets embedded tokens as they are; a
linear head predicts the actions. A training update is forward, backward, clipping and optimizer on one batch; ours is
`icrl.training.updates.Updater` with its embeddings, weights and metrics. Each side may use one thread or two, and
float32 or bfloat16, and GPT-2 either form of attention. In generation GPT-2 reads one step after the other into its
cache, dynamic or static. Ours, in float32, plays the world: it also embeds, samples actions and steps, and in the row of
two contexts it rebuilds the full ones.
"""

import sys
from collections.abc import Callable
from functools import partial
from itertools import product

import torch
from transformers import Cache, DynamicCache, StaticCache  # type: ignore  # needs benchmarks/requirements.txt

from benchmarks.gpt2 import GPT2, generate, gpt2_update
from benchmarks.measure import Report, fastest, side_by_side
from benchmarks.stage_two import HALFWAY, our_update, random_batch, repeated
from icrl.config.compose import load_config
from icrl.contracts import EnvSpec
from icrl.envs import make_env
from icrl.envs.tasks import split_tasks
from icrl.evaluation.in_context import play_steps
from icrl.nn.gpt import GPT
from icrl.nn.gpt_policy import GPTPolicy

ROUNDS, UPDATES, ATTENTIONS, THREADS = 5, 3, ("eager", "sdpa"), (1, 2)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
PEER, OURS = "GPT-2", "ours"
Ways = dict[str, Callable[[], int]]


def updates(overrides: list[str], spec: EnvSpec) -> Ways:
    """Updates of each side, in each dtype and on each number of threads."""
    ways = Ways()
    for dtype in DTYPES:
        config = load_config([*overrides, f"device.amp_dtype={'none' if dtype == 'float32' else dtype}"])
        batch, bfloat16 = random_batch(config, spec), dtype == "bfloat16"
        sides = {OURS: our_update(config, spec, batch)}
        for attention in ATTENTIONS:
            sides[f"{PEER}, {attention}"] = gpt2_update(config, spec, attention, batch, HALFWAY, bfloat16=bfloat16)
        for (name, update), threads in product(sides.items(), THREADS):
            ways[f"{name}, {dtype}, threads: {threads}"] = partial(repeated, update, UPDATES, threads)
    return ways


def generations(overrides: list[str]) -> tuple[str, Ways]:
    """Title, and generation of each side through one context; ours through two contexts too."""
    config = load_config(overrides)
    env, context, per_task = make_env(config.env), config.model.context_len, config.evaluation.num_streams
    tasks = env.all_tasks()[split_tasks(env, config).held_out]
    num_streams = len(tasks) * per_task
    policy = GPTPolicy(GPT(config.model, env.spec), 1.0, config.policy.temperature, config.policy.context_kept)

    def played(num_steps: int) -> int:
        return play_steps(policy, env, tasks, per_task, num_steps, 0).obs.numel()

    sides: Ways = {f"{OURS}, one context": partial(played, context)}
    sides[f"{OURS}, two contexts"] = partial(played, 2 * context)
    for attention, (name, dtype) in product(ATTENTIONS, DTYPES.items()):
        model = GPT2(config, env.spec, attention).to(dtype).eval()
        caches: dict[str, Callable[[], Cache]] = {
            "dynamic cache": partial(DynamicCache, config=model.options),
            "static cache": partial(StaticCache, model.options, model.options.n_positions),
        }
        for kind, make_cache in caches.items():
            sides[f"{PEER}, {attention}, {name}, {kind}"] = partial(generate, model, make_cache, num_streams, context)

    def on(num_threads: int, work: Callable[[], int]) -> int:
        torch.set_num_threads(num_threads)
        return work()

    ways: Ways = {f"{name}, threads: {n}": partial(on, n, work) for (name, work), n in product(sides.items(), THREADS)}
    return f"Generation, {num_streams} streams, context {context}", ways


def main(overrides: list[str]) -> None:
    report, config = Report("hugging_face", overrides), load_config(overrides)
    model, trainer = config.model, config.trainer
    sizes = f"{model.num_layers} layers, {model.num_heads} heads, width {model.embed_dim}"
    title = f"Update of {trainer.mini_batch_size} windows of {model.context_len} steps, {sizes}"
    rates = side_by_side(updates(overrides, make_env(config.env).spec), ROUNDS)
    report.show(title, rates, "update", fastest(rates, PEER))
    title, ways = generations(overrides)
    rates = side_by_side(ways, ROUNDS)
    report.show(title, rates, "env step", fastest(rates, PEER))


if __name__ == "__main__":
    main(sys.argv[1:])
