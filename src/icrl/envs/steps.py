"""Steps of an environment that is not ours, checked before a policy reads them. B streams."""

import torch
from torch import Tensor

from icrl.contracts import Step
from icrl.spaces import EnvSpec


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
    _check("obs", obs, (*num_streams, *spec.obs_shape), spec.obs_dtype)
    zero = torch.zeros(num_streams, dtype=torch.long, device=obs.device)
    first = Step(obs, zero.float(), zero.bool(), zero.bool(), obs, zero, spec.unknown_action(zero))
    given = dict(reward=reward, timestep=timestep, terminated=terminated, truncated=truncated, final_obs=final_obs)
    step = first._replace(**{name: value for name, value in given.items() if value is not None})
    for name, value, right in zip(Step._fields, step, first, strict=True):
        _check(name, value, right.shape, right.dtype)
    check_ranges(spec, step)
    _check_obs("final_obs", step.final_obs, spec)
    late = step.timestep[step.terminated | step.truncated]
    if late.any():
        raise ValueError(f"timestep is {int(late.max())} where an episode ended: must be 0, that of the next episode")
    return step


def check_form(spec: EnvSpec, step: Step, num_streams: int) -> None:
    """Raise `ValueError` unless the fields that a model reads have the shapes and dtypes of a world with `spec`."""
    _check("obs", step.obs, (num_streams, *spec.obs_shape), spec.obs_dtype)
    _check("reward", step.reward, (num_streams,), torch.float32)
    _check("timestep", step.timestep, (num_streams,), torch.long)


def check_ranges(spec: EnvSpec, step: Step) -> None:
    """Raise `ValueError` unless the fields that a model reads are in range. Synchronises with the device."""
    _check_obs("obs", step.obs, spec)
    known = step.reward.isfinite()
    if spec.reward_values:
        first = (step.reward == 0) & (step.timestep == 0)
        known &= (spec.reward_of(spec.reward_index(step.reward)) == step.reward) | first
    if not known.all():
        allowed = f"one of {spec.reward_values}" if spec.reward_values else "a finite number"
        raise ValueError(f"reward is {float(step.reward[~known][0]):g} in some stream: must be {allowed}")
    _check_range("timestep", step.timestep, spec.max_episode_steps)


def _check(name: str, value: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} is a {type(value).__name__}: must be a tensor")
    if value.shape != shape or value.dtype != dtype:
        form, allowed = f"{tuple(value.shape)} {value.dtype}", f"{tuple(shape)} {dtype}, one row for each stream"
        raise ValueError(f"{name} is {form}: must be {allowed}".replace("torch.", ""))


def _check_obs(name: str, obs: Tensor, spec: EnvSpec) -> None:
    if spec.obs_dtype == torch.int64:
        _check_range(name, obs, spec.num_obs)
        if (sizes := getattr(spec.observation_space, "nvec", None)) is not None:  # each number has a range of its own
            _check_range(name, obs, torch.as_tensor(sizes, device=obs.device))
    elif not obs.isfinite().all():
        raise ValueError(f"{name} is not finite in some stream: must be finite numbers")


def _check_range(name: str, value: Tensor, end: Tensor | int) -> None:
    if (wrong := (value < 0) | (value >= end)).any():
        most = (torch.as_tensor(end) - 1).tolist()
        raise ValueError(f"{name} is {value[wrong][0]} in some stream: must be from 0 to {most}")
