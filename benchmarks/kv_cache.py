"""Speed of an in-context rollout with the key-value cache, and with a full forward pass at each step.

python -m benchmarks.kv_cache
"""

from functools import partial

import torch
from torch import Tensor

from benchmarks.measure import Report, side_by_side
from icrl.config.compose import load_config
from icrl.contracts import EnvSpec
from icrl.envs.rollout import step_of
from icrl.nn.gpt import GPT, context_of
from icrl.nn.gpt_policy import GPTPolicy

CONTEXT, NUM_STREAMS, UNCACHED_STEPS = 256, 64, 4


def cached(model: GPT, window: Tensor) -> int:
    """A whole context of `window` `[4, B, T]`, step by step; returns the number of steps."""
    policy = GPTPolicy(model, 0.0, 1.0, 0.75)
    carry = policy.initial_carry(NUM_STREAMS)
    for obs, _, reward, timestep in window.permute(2, 0, 1):
        step = step_of(model.spec, obs=obs, reward=reward, timestep=timestep)
        _, carry = policy.act(carry, step, obs.float())
    return CONTEXT


@torch.no_grad()
def uncached(model: GPT, window: Tensor) -> int:
    """Some steps spread evenly over the same context, each a forward pass over all steps before it."""
    for step in range(UNCACHED_STEPS):
        seen = CONTEXT * (2 * step + 1) // (2 * UNCACHED_STEPS)
        model(context_of(model.spec, *window[:, :, :seen]))
    return UNCACHED_STEPS


def main() -> None:
    torch.set_num_threads(1)
    report = Report("kv_cache")
    spec = EnvSpec(num_obs=81, num_actions=5, reward_values=(0.0, 1.0), width=9, max_episode_steps=20)
    for tokens in ("transition", "interleaved"):
        config = load_config([f"model.tokens={tokens}", f"model.context_len={CONTEXT}"]).model
        model = GPT(config, spec).eval()
        window = torch.randint(2, (4, NUM_STREAMS, CONTEXT))
        ways = {"uncached": partial(uncached, model, window), "cached": partial(cached, model, window)}
        title = f"{tokens} tokens, context {CONTEXT}, {NUM_STREAMS} streams"
        report.show(title, side_by_side(ways, rounds=5), "step", "uncached")


if __name__ == "__main__":
    main()
