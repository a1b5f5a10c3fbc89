"""What Gymnasium's `render` shows of each world."""

import gymnasium
import numpy as np
import pytest
from worlds import bandit

import icrl.envs  # noqa: F401  registers the environments
from icrl.envs.core import MapView
from icrl.envs.render import render_cells

SMALL = {"size": 3, "render_mode": "rgb_array"}


def test_render_shows_agent_and_goal_of_each_stream() -> None:
    single = gymnasium.make("icrl/DarkRoom-v0", **SMALL, goal=(0, 0))
    batched = gymnasium.make_vec("icrl/DarkRoom-v0", 2, **SMALL, goals=[(0, 0), (2, 2)])
    single.reset(seed=0), batched.reset(seed=0)
    rooms = MapView(3, 3, (0,)), MapView(3, 3, (8,))
    assert np.array_equal(single.render(), render_cells(np.array([4]), rooms[0])[0])
    assert np.array_equal(batched.render(), [render_cells(np.array([4]), view)[0] for view in rooms])
    single.step(np.int64(2)), batched.step(np.array([2, 3]))
    assert np.array_equal(single.render(), render_cells(np.array([5]), rooms[0])[0])
    assert np.array_equal(batched.render()[1], render_cells(np.array([7]), rooms[1])[0])
    single.reset()
    assert np.array_equal(single.render(), render_cells(np.array([4]), rooms[0])[0])


@pytest.mark.parametrize("env_id", ["icrl/DarkRoom-v0", "icrl/DarkRoomClassic-v0"])
def test_the_last_frame_of_an_episode_shows_its_last_cell(env_id: str) -> None:
    env = gymnasium.make(env_id, **SMALL, goal=(1, 2))
    env.reset(seed=0)
    env.step(np.int64(2))
    assert np.array_equal(env.render(), render_cells(np.array([5]), MapView(3, 3, (5,)))[0])


def test_render_without_a_mode_warns() -> None:
    for env in (gymnasium.make("icrl/DarkRoom-v0").unwrapped, gymnasium.make_vec("icrl/DarkRoom-v0", 2)):
        env.reset(seed=0)
        with pytest.warns(UserWarning, match="rgb_array"):
            assert env.render() is None


def test_render_shows_the_arm_pulled_last() -> None:
    """And none before the first pull of a stream; over the end of episodes of one pull each too."""
    options = {"num_arms": 4, "task": [3], "render_mode": "rgb_array"}
    single = gymnasium.make("icrl/Bandit-v0", **options)
    batched = gymnasium.make_vec("icrl/Bandit-v0", 2, **options)
    best = int(bandit(num_arms=4).means[3].argmax())
    view = MapView(1, 4, (best,))

    def shown(arm: int) -> np.ndarray:
        return render_cells(np.array([arm]), view)[0]

    for _ in range(2):
        single.reset(seed=0), batched.reset(seed=0)
        assert np.array_equal(single.render(), shown(-1))
        assert np.array_equal(batched.render(), [shown(-1)] * 2)
        for arm in (2, 0):
            single.step(np.int64(arm)), batched.step(np.array([arm, 1]))
            assert np.array_equal(single.render(), shown(arm))
            assert np.array_equal(batched.render(), [shown(arm), shown(1)])
            single.reset()
            assert np.array_equal(single.render(), shown(arm))
    batched.reset(seed=1, options={"reset_mask": np.array([False, True])})
    assert np.array_equal(batched.render(), [shown(0), shown(-1)])


def test_render_shows_key_and_door() -> None:
    env = gymnasium.make("icrl/DarkKeyToDoor-v0", size=3, key=(0, 1), door=(2, 2), render_mode="rgb_array")
    obs, _ = env.reset(seed=0)
    assert np.array_equal(env.render(), render_cells(np.array([obs]), MapView(3, 3, (1, 8)))[0])
