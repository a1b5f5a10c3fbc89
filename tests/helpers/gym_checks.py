"""Our worlds as vector environments against Gymnasium's own over single ones, and their refusals."""

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from icrl.extensions.as_gymnasium.environments import BatchedEnv, make_batched, make_single, started


def check_id(env_id: str) -> None:
    """Gymnasium's checker has no complaint."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for render_mode in (None, "rgb_array"):
            check_env(gymnasium.make(f"icrl:{env_id}", render_mode=render_mode).unwrapped)


def check_native(env_id: str, given: dict[str, Any], sizes: tuple[int, int]) -> None:
    """Every value, type and info of many episodes, with resets by seed, by list of seeds and by mask in between.
    `sizes` are the numbers of observations and actions."""
    native = gymnasium.make_vec(env_id, 5, **given)
    same_step = {"autoreset_mode": AutoresetMode.SAME_STEP}
    sync = gymnasium.make_vec(env_id, 5, vectorization_mode="sync", vector_kwargs=same_step, **given)
    assert isinstance(native, BatchedEnv) and isinstance(sync, SyncVectorEnv)
    assert native.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert (native.observation_space, native.action_space) == (sync.observation_space, sync.action_space)
    assert (native.single_observation_space, native.single_action_space) == tuple(map(Discrete, sizes))
    rng = np.random.default_rng(0)
    resets = {
        0: {"seed": 7},
        50: {},
        60: {"options": {"reset_mask": np.array([True, False, True, False, False])}},
        70: {"seed": 3, "options": {"reset_mask": np.array([False, True, True, False, False])}},
        80: {"seed": [4, None, 2**70, None, 0]},
    }
    for time in range(85):
        if time in resets:
            assert data_equivalence(native.reset(**resets[time]), sync.reset(**resets[time]), exact=True)
        actions = rng.integers(native.single_action_space.n, size=5)
        ours, theirs = native.step(actions), sync.step(actions)
        assert data_equivalence(ours, theirs, exact=True), f"{time}: {ours} {theirs}"


def check_task(world: Any, given: Any, rows: list[Any]) -> None:
    """Streams have the tasks `rows`: one for all streams, which a single environment takes too, or one for each."""
    shared = not isinstance(rows[0], list)
    for batched in (make_batched(2, **world, **given), *([make_single(**world, **given)._batched] if shared else [])):
        for seed in (0, 1):
            batched.reset(seed=seed)
            assert started(batched._state).task.tolist() == ([rows] * batched.num_envs if shared else rows)


def check_wrong(world: dict[str, Any], given: dict[str, Any], message: str) -> None:
    """Arguments are refused, by a single and by a batched environment."""
    for make, number in ((make_single, {}), (make_batched, {"num_envs": 2})):
        with pytest.raises((ValueError, TypeError), match=message):
            make(**{**number, **world, **given})
