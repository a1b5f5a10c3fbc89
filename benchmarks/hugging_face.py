"""Training and generation with the default model, beside GPT-2 of Hugging Face Transformers of the same sizes.

    python -m benchmarks.hugging_face [KEY=VALUE ...]

Sizes, batch, context, streams and optimizer are those of the configuration. GPT-2 gets embedded tokens as they are; a
linear head predicts the actions. A training update is forward, backward, clipping and optimizer on one batch; ours is
`icrl.training.updates.Updater` with its embeddings, weights and metrics. Each side may use one thread or two, and GPT-2
either form of attention. Generation is on one thread, in steps per second of processor time. GPT-2 reads one step after
the other into its cache, dynamic or static. Ours plays the world: it also embeds, samples actions and steps, and in the
row of two contexts it rebuilds the full ones.
"""

import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from transformers import Cache, DynamicCache, StaticCache  # type: ignore  # needs benchmarks/requirements.txt

from benchmarks.gpt2 import GPT2, generate, gpt2_update
from benchmarks.measure import fastest, show, side_by_side
from icrl.config.compose import load_config
from icrl.config.root import Config
from icrl.config.schedules import Clock
from icrl.contracts import Batch, EnvSpec
from icrl.envs import make_env
from icrl.envs.tasks import split_tasks
from icrl.evaluation.in_context import play_steps
from icrl.nn.gpt import GPT
from icrl.nn.gpt_policy import GPTPolicy
from icrl.programs.train_gpt import OBJECTIVES
from icrl.runs.distributed import Ranks
from icrl.training.updates import Updater

ROUNDS, UPDATES, ATTENTIONS, THREADS = 5, 3, ("eager", "sdpa"), (1, 2)
HALFWAY = Clock(0.5, 1000, 0, 1000)
PEER, OURS = "GPT-2", "ours"


def random_batch(config: Config, spec: EnvSpec) -> Batch:
    """Windows of random transitions, as many as in an update."""
    shape = (config.trainer.mini_batch_size, config.trainer.mini_batch_length or config.model.context_len)
    bounds = {"obs": spec.num_obs, "action": spec.num_actions, "reward": spec.num_rewards, "next_obs": spec.num_obs}
    bounds |= {"timestep": spec.max_episode_steps, "terminated": 2, "truncated": 2, "optimal_action": spec.num_actions}
    columns = {name: torch.randint(bound, shape) for name, bound in bounds.items()}
    return Batch(**columns, weight=torch.ones(shape), training_reward=torch.zeros(shape))


def our_update(config: Config, spec: EnvSpec, batch: Batch) -> Callable[[], object]:
    """Update of our model on one batch."""
    objective = OBJECTIVES[config.objective.name](config.objective, spec)
    updater = Updater(GPT(config.model, spec).train(), objective, config, torch.device("cpu"), Ranks())
    return lambda: updater.update(batch, HALFWAY)


def repeated(update: Callable[[], object], num_threads: int) -> int:
    """Several updates on `num_threads` threads; returns their number."""
    torch.set_num_threads(num_threads)
    for _ in range(UPDATES):
        update()
    return UPDATES


def main(overrides: list[str]) -> None:
    config = load_config(overrides)
    env, context, per_task = make_env(config.env), config.model.context_len, config.evaluation.num_streams
    batch = random_batch(config, env.spec)
    updates = {OURS: our_update(config, env.spec, batch)}
    updates |= {
        f"{PEER}, {attention}": gpt2_update(config, env.spec, attention, batch, HALFWAY) for attention in ATTENTIONS
    }
    ways: dict[str, Callable[[], int]] = {
        f"{name}, threads: {threads}": partial(repeated, update, threads)
        for name, update in updates.items()
        for threads in THREADS
    }
    print(f"update of {config.trainer.mini_batch_size} windows of {context} steps")
    rates = side_by_side(ways, ROUNDS)
    show(rates, "update", fastest(rates, PEER))

    torch.set_num_threads(1)
    tasks = env.all_tasks()[split_tasks(env, config).held_out]
    num_streams = len(tasks) * per_task
    policy = GPTPolicy(GPT(config.model, env.spec), 1.0, config.policy.temperature, config.policy.context_kept)

    def played(num_steps: int) -> int:
        return play_steps(policy, env, tasks, per_task, num_steps, 0).obs.numel()

    ways = {f"{OURS}, one context": partial(played, context), f"{OURS}, two contexts": partial(played, 2 * context)}
    for attention in ATTENTIONS:
        model = GPT2(config, env.spec, attention).eval()
        length = model.options.n_positions
        caches: dict[str, Callable[[], Cache]] = {
            "dynamic cache": partial(DynamicCache, config=model.options),
            "static cache": partial(StaticCache, model.options, length),
        }
        for name, make_cache in caches.items():
            ways[f"{PEER}, {attention}, {name}"] = partial(generate, model, make_cache, num_streams, context)
    print(f"generation, {num_streams} streams, context {context}")
    rates = side_by_side(ways, ROUNDS, clock=time.process_time)
    show(rates, "env step", fastest(rates, PEER))


if __name__ == "__main__":
    main(sys.argv[1:])
