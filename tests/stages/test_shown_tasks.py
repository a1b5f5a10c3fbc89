"""Worlds that show their tasks, one learner of all tasks, and refusals."""

import numpy as np
import pytest
import torch

from icrl import extensions
from icrl.app.compose import load_config
from icrl.envs import make_env

WORLDS = ["env=gymnasium_pendulum"] if {"from_gymnasium", "vectors"} <= {*extensions.NAMES} else []
if "vectors" in extensions.NAMES:
    WORLDS += ["env=point_robot", "env=cart_pole", "env=pendulum"]


@pytest.mark.parametrize("world", WORLDS)
def test_a_world_shows_its_task_at_the_end_of_each_observation(world: str) -> None:
    """Over the ends of episodes, beside the same world without; pictures are the same."""
    plain, shown = (
        make_env(load_config([world, "env.max_episode_steps=3", f"env.task_visible={visible}"]).env)
        for visible in ("false", "true")
    )
    tasks, seeds = plain.all_tasks()[:4], torch.arange(4)
    numbers = shown.task_numbers(tasks)
    assert len(numbers.unique(dim=0)) == 4
    (state, step), (there, after) = plain.reset(tasks, seeds), shown.reset(tasks, seeds)
    for time in range(5):
        for name in ("obs", "final_obs"):
            expected = torch.cat([getattr(step, name), numbers], dim=1)
            assert getattr(after, name).equal(expected)
            assert all(row in shown.spec.observation_space for row in expected.numpy())
        assert after.reward.equal(step.reward) and after.timestep.equal(step.timestep)
        action = torch.full((4, *plain.spec.action_shape), time % 2, dtype=plain.spec.action_dtype)
        (state, step), (there, after) = plain.step(state, action), shown.step(there, action)
    if world != "env=gymnasium_pendulum":
        seen = torch.cat([step.obs[:1], numbers[:1]], dim=1), step.obs[:1]
        worlds = zip((shown, plain), seen, strict=True)
        assert np.array_equal(*(env.pictures(tasks[0], 0, 0, obs, action[:0]) for env, obs in worlds))
    plain.close()
    shown.close()
