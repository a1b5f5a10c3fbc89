"""Worlds of packages: the way to a door, a velocity to run at, and how to install what is missing."""

import sys
from collections import deque

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from icrl.app.compose import load_config
from icrl.contracts import ConfigError
from icrl.envs import make_env
from icrl.extensions.gym_worlds.mini_grid import first_actions
from icrl.randomness import stream_seeds


@pytest.mark.parametrize(
    ("world", "package"), [("minigrid_fetch", "minigrid"), ("ml1_reach", "metaworld"), ("ant_dir", "mujoco")]
)
def test_a_missing_package_is_named_with_how_to_install_it(
    world: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [*sys.modules]:
        if (
            module.startswith(("gymnasium.envs.mujoco", "icrl.extensions.gym_worlds.locomotion"))
            and package == "mujoco"
        ):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError) as refused:
        make_env(load_config([f"env={world}"]).env)
    extra = "gymnasium[mujoco]" if package == "mujoco" else f"in-context-rl[{package}]"
    assert f'pip install "{extra}"' in str(refused.value) and "\n" not in str(refused.value)


def test_half_cheetah_runs_at_a_hidden_velocity() -> None:
    """Reward of Finn et al. (2017), on the physics of Gymnasium's HalfCheetah."""
    pytest.importorskip("mujoco")
    config = load_config(["env=half_cheetah_vel"]).env
    env, plain = make_env(config), gymnasium.make("HalfCheetah-v5")
    assert [task["velocity"] for task in config.tasks] == [round(0.075 * i, 3) for i in range(1, 41)]
    state, step = env.reset(torch.tensor([[19]]), stream_seeds(0, 1))
    simulation = env._streams._streams[0]._env.unwrapped.data
    plain.reset(seed=0)
    plain.unwrapped.set_state(simulation.qpos.copy(), simulation.qvel.copy())
    for action in torch.rand(20, 1, 6, generator=torch.Generator().manual_seed(0)) * 2 - 1:
        state, step = env.step(state, action)
        obs, _, _, _, info = plain.step(action[0].numpy())
        assert np.array_equal(step.obs[0].numpy(), obs.astype(np.float32))
        expected = -abs(info["x_velocity"] - 1.5) - 0.05 * float((action**2).sum())
        assert step.reward.item() == pytest.approx(expected, abs=1e-5)


@given(st.integers(0, 2**16), st.floats(0.3, 1.0))
def test_shortest_ways_are_those_of_a_search(seed: int, share: float) -> None:
    rng, headings = np.random.default_rng(seed), ((1, 0), (0, 1), (-1, 0), (0, -1))
    free = np.zeros((6, 7), bool)
    free[1:-1, 1:-1] = rng.random((4, 5)) < share
    ready = (rng.random((6, 7, 4)) < 0.05) & free[:, :, None]
    found = first_actions(free, ready, 6)

    def after(place: tuple[int, int, int], action: int) -> tuple[int, int, int]:
        column, row, heading = place
        if action < 2:
            return column, row, (heading + (-1, 1)[action]) % 4
        ahead = (column + headings[heading][0], row + headings[heading][1])
        return (*ahead, heading) if free[ahead] else place

    def steps(start: tuple[int, int, int]) -> int | None:
        seen, queue = {start}, deque([(start, 0)])
        while queue:
            place, number = queue.popleft()
            if ready[place]:
                return number
            for action in range(3):
                if (then := after(place, action)) not in seen:
                    seen.add(then)
                    queue.append((then, number + 1))
        return None

    for column, row, heading in np.argwhere(np.repeat(free[:, :, None], 4, axis=2)).tolist():
        place = (column, row, heading)
        if (number := steps(place)) is not None:
            assert found[place] == 6 if number == 0 else steps(after(place, int(found[place]))) == number - 1
