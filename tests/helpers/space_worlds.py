"""Specs of worlds that differ in their spaces, and random steps in them."""

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space
from torch import Tensor

from icrl.contracts import Step
from icrl.nn.gpt import Window
from icrl.spaces import EnvSpec, tensor_dtype

HORIZON = 7
VECTOR = Box(-np.inf, np.inf, (3,))
IMAGE = Box(0, 255, (5, 4, 3), np.uint8)
ARM = Box(np.array([-2.0, 0.5], np.float32), np.array([1.0, 0.75], np.float32))
LISTED = (0.0, 1.0, -0.5)


def spec_of(obs: Space, action: Space, *reward_values: float) -> EnvSpec:
    return EnvSpec(obs, action, reward_values, 0, HORIZON)


WORLDS = {
    "vector to arm": spec_of(VECTOR, ARM),
    "image to number": spec_of(IMAGE, Discrete(4)),
    "integers to integers": spec_of(MultiDiscrete([4, 2, 3]), MultiDiscrete([3, 2]), *LISTED),
    "number to arm": spec_of(Discrete(6), ARM, *LISTED),
    "vector to number": spec_of(VECTOR, Discrete(4), *LISTED),
    "image to integers": spec_of(IMAGE, MultiDiscrete([3, 2])),
}


def elements(space: Space, *shape: int, seed: int = 0) -> Tensor:
    """Random elements of a space, `[*shape, *space.shape]`; an infinite Box has those of a wide normal distribution."""
    space.seed(seed)
    drawn = np.stack([space.sample() for _ in range(int(np.prod(shape)))])
    drawn = drawn * 3 + 5 if space is VECTOR else drawn
    return torch.from_numpy(drawn).to(tensor_dtype(space)).view(*shape, *(space.shape or ()))


def window_of(spec: EnvSpec, num_streams: int, num_steps: int, seed: int = 0) -> Window:
    """Random transitions; episodes of the streams end at different times."""
    generator = torch.Generator().manual_seed(seed)
    reward = torch.randn(num_streams, num_steps, generator=generator) * 4
    if spec.reward_values:
        reward = spec.reward_of(torch.randint(spec.num_rewards, reward.shape, generator=generator))
    obs, action = (
        elements(space, num_streams, num_steps, seed=seed) for space in (spec.observation_space, spec.action_space)
    )
    timestep = (torch.arange(num_steps) + torch.arange(num_streams)[:, None] * 3) % HORIZON
    return Window(obs, action, reward, timestep)


def step_at(spec: EnvSpec, window: Window, t: int) -> Step:
    """The step that a policy sees at time t of the streams of `window`."""
    obs, no = window.obs[:, t], torch.zeros(len(window.obs), dtype=torch.bool)
    reward = window.reward[:, t - 1] if t else torch.zeros(len(obs))
    return Step(obs, reward, no, no, obs, window.timestep[:, t], spec.unknown_action(obs))
