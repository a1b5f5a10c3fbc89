"""Steps of an environment that is not ours, checked before a policy reads them. B streams."""

import torch
from torch import Tensor

from icrl.contracts import EnvSpec, Step


def step_of(
    spec: EnvSpec,
    *,
    obs: Tensor,
    reward: Tensor | None = None,
    timestep: Tensor | None = None,
    terminated: Tensor | None = None,
    truncated: Tensor | None = None,
    final_obs: Tensor | None = None,
) -> Step:
    """Checked step of B streams of a world with `spec`; see `Step` for the fields and their values after a reset.

    `obs` alone makes a first step; after an action `reward` and `timestep` are needed too. By default no episode ended.
    Raises `ValueError` for a field of the wrong shape, dtype or range."""
    if (reward is None) != (timestep is None):
        missing = "timestep" if timestep is None else "reward"
        raise ValueError(f"{missing} is missing: give reward and timestep, or neither in the first step of all streams")
    num_streams = tuple(getattr(obs, "shape", ()))[:1] or (1,)
    _check("obs", obs, (*num_streams, *spec.obs_shape), torch.long)
    zero = torch.zeros(num_streams, dtype=torch.long, device=obs.device)
    step = Step(
        obs=obs,
        reward=zero if reward is None else reward,
        terminated=zero.bool() if terminated is None else terminated,
        truncated=zero.bool() if truncated is None else truncated,
        final_obs=obs if final_obs is None else final_obs,
        timestep=zero if timestep is None else timestep,
        optimal_action=zero + spec.num_actions,
    )
    check_form(spec, step, len(zero))
    for name, expected in (("final_obs", obs), ("terminated", zero.bool()), ("truncated", zero.bool())):
        _check(name, getattr(step, name), expected.shape, expected.dtype)
    check_ranges(spec, step)
    _check_range("final_obs", step.final_obs, spec.num_obs)
    late = step.timestep[step.terminated | step.truncated]
    if late.any():
        raise ValueError(f"timestep is {int(late.max())} where an episode ended: must be 0, that of the next episode")
    return step


def check_form(spec: EnvSpec, step: Step, num_streams: int) -> None:
    """Raise `ValueError` unless the fields that a model reads have the shapes and the dtype of a world with `spec`."""
    _check("obs", step.obs, (num_streams, *spec.obs_shape), torch.long)
    _check("reward", step.reward, (num_streams,), torch.long)
    _check("timestep", step.timestep, (num_streams,), torch.long)


def check_ranges(spec: EnvSpec, step: Step) -> None:
    """Raise `ValueError` unless the fields that a model reads are in the ranges of a world with `spec`. Synchronises
    with the device."""
    _check_range("obs", step.obs, spec.num_obs)
    _check_range("reward", step.reward, spec.num_rewards)
    _check_range("timestep", step.timestep, spec.max_episode_steps)


def _check(name: str, value: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} is a {type(value).__name__}: must be a tensor")
    if value.shape != shape or value.dtype != dtype:
        hint = ", an index into spec.reward_values" if name == "reward" else ""
        form, allowed = f"{tuple(value.shape)} {value.dtype}", f"{tuple(shape)} {dtype}"
        message = f"{name} is {form}: must be {allowed}{hint}, one row for each stream"
        raise ValueError(message.replace("torch.", ""))


def _check_range(name: str, value: Tensor, end: int) -> None:
    low, high = (bound.item() for bound in value.aminmax()) if value.numel() else (0, 0)
    if low < 0 or high >= end:
        raise ValueError(f"{name} is {low if low < 0 else high} in some stream: must be from 0 to {end - 1}")
