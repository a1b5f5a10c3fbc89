"""Speed of an in-context rollout with the key-value cache, and with a full forward pass at each step.

python -m benchmarks.kv_cache
"""

from functools import partial

import numpy as np
import torch

from benchmarks.measure import Report, side_by_side
from icrl.app.compose import load_config
from icrl.envs.rollout import step_of
from icrl.nn.gpt import GPT, Window, context_of
from icrl.nn.gpt_policy import GPTPolicy
from icrl.spaces import discrete_spec

CONTEXT, NUM_STREAMS, UNCACHED_STEPS = 256, 64, 4


def cached(model: GPT, window: Window) -> int:
    """A whole context of `window` `[B, T]`, step by step; returns the number of steps."""
    policy = GPTPolicy(model, 0.0, 1.0, 0.75)
    carry = policy.initial_carry(NUM_STREAMS)
    for time in range(CONTEXT):
        obs, _, reward, timestep = window.at(np.s_[:, time])
        step = step_of(model.spec, obs=obs, reward=reward, timestep=timestep)
        _, carry = policy.act(carry, step, reward)
    return CONTEXT


@torch.no_grad()
def uncached(model: GPT, window: Window) -> int:
    """Some steps spread evenly over the same context, each a forward pass over all steps before it."""
    for step in range(UNCACHED_STEPS):
        seen = CONTEXT * (2 * step + 1) // (2 * UNCACHED_STEPS)
        model(context_of(window.at(np.s_[:, :seen])))
    return UNCACHED_STEPS


def main() -> None:
    torch.set_num_threads(1)
    report = Report("kv_cache")
    spec = discrete_spec(num_obs=81, num_actions=5, reward_values=(0.0, 1.0), width=9, max_episode_steps=20)
    for tokens in ("transition", "interleaved"):
        config = load_config([f"model.tokens={tokens}", f"model.context_len={CONTEXT}"]).model
        model = GPT(config, spec).eval()
        shape = (NUM_STREAMS, CONTEXT)
        obs, action, reward, timestep = (torch.randint(2, shape) for _ in Window._fields)
        window = Window(obs, action, reward.float(), timestep)
        ways = {"uncached": partial(uncached, model, window), "cached": partial(cached, model, window)}
        title = f"{tokens} tokens, context {CONTEXT}, {NUM_STREAMS} streams"
        report.show(title, side_by_side(ways, rounds=5), "step", "uncached")


if __name__ == "__main__":
    main()
