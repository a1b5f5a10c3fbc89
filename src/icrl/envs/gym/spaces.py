"""What the Gymnasium faces of all worlds have in common: seeds, masks of resets, the infos of what ended. B streams."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray
from torch import Tensor

Bools = NDArray[np.bool_]
State = TypeVar("State")


def stream_seeds(seeds: Iterable[int]) -> Tensor:
    """The core's seeds `[B]` int64: Gymnasium's non-negative ones, cut to 64 bits."""
    return torch.from_numpy(np.array([seed % 2**64 for seed in seeds], np.uint64).view(np.int64))


def seeds_of(seed: int | Sequence[int | None] | None, num_envs: int) -> Sequence[int | None]:
    """One for each stream, of `seed` as `VectorEnv.reset` takes it; None is a seed nobody chose."""
    if seed is None:
        return [None] * num_envs
    if isinstance(seed, int):
        return [seed + stream for stream in range(num_envs)]
    if len(seed) != num_envs:
        raise ValueError(f"seed={seed}: must be an int or a list of num_envs={num_envs}")
    return seed


def reset_mask(options: dict[str, Any], num_envs: int) -> Bools:
    """The streams that `VectorEnv.reset` is to reset, `[B]`: all without `options["reset_mask"]`."""
    mask = options.get("reset_mask", np.ones(num_envs, bool))
    good = isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.shape == (num_envs,) and mask.any()
    if not good:
        raise ValueError(
            f"options['reset_mask']={mask!r}: must be an array of num_envs={num_envs} bools, not all False"
        )
    return mask.copy()


def started(state: State | None) -> State:
    """Raises `ResetNeeded` where nothing was started."""
    if state is None:
        raise ResetNeeded("call reset() first")
    return state


def final_infos(done: Bools, final_obs: Iterable[Any], final_info: dict[str, Any]) -> dict[str, Any]:
    """What Gymnasium's own vector environments tell of the streams `done` `[B]` that ended in a step: their last
    observations, one for each that is done, and infos."""
    last_obs = np.full(len(done), None, dtype=object)
    for stream, obs in zip(done.nonzero()[0], final_obs, strict=True):
        last_obs[stream] = obs
    return {"final_obs": last_obs, "_final_obs": done.copy(), "final_info": final_info, "_final_info": done.copy()}
