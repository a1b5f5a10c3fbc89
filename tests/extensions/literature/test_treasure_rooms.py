"""Treasure rooms: a room worked by hand, and the distribution of objects."""

import pytest
import torch

from icrl.app.compose import load_config
from icrl.envs import make_env
from icrl.envs.rooms import LEFT, RIGHT, STAY, UP
from icrl.extensions.literature.treasure_rooms import TreasureRoom, TreasureRoomConfig
from icrl.randomness import stream_seeds


def test_objects_pay_once_an_episode() -> None:
    """A 3 x 3 room: two objects on the cell above the centre, one on the start, which pays after a move that ends
    there."""
    env = TreasureRoom(TreasureRoomConfig(size=3, num_objects=3, num_tasks=3, max_episode_steps=6))
    env.places[1], env.values[1] = torch.tensor([1, 1, 4]), torch.tensor([1.5, -4.0, 0.25])
    state, step = env.reset(torch.tensor([[1], [1]]), stream_seeds(0, 2))
    assert step.obs.tolist() == [4, 4]
    moves = {UP: (1, -2.5), STAY: (1, 0.0), RIGHT: (2, 0.0), LEFT: (1, 0.0)}
    for action, (cell, reward) in moves.items():
        state, step = env.step(state, torch.tensor([action, STAY]))
        assert (int(step.obs[0]), float(step.reward[0])) == (cell, reward)
        assert float(step.reward[1]) == (0.25 if action == UP else 0.0)
    for _ in range(2):
        state, step = env.step(state, torch.tensor([STAY, STAY]))
    assert step.truncated.all() and not step.terminated.any() and step.obs.tolist() == [4, 4]
    state, step = env.step(state, torch.tensor([UP, UP]))
    assert step.reward.tolist() == [-2.5, -2.5], "objects are back in the next episode"
    assert env.map_view(torch.tensor([1])).goals == (1, 4)


@pytest.mark.parametrize("lowest", [-4.0, 0.0])
def test_values_and_cells_are_uniform(lowest: float) -> None:
    env = make_env(load_config(["env=treasure_room", f"env.lowest={lowest}"]).env)
    assert isinstance(env, TreasureRoom) and env.spec.max_episode_steps == 9
    assert lowest <= env.values.min() and env.values.max() <= 2 and env.values.shape == (5000, 8)
    assert env.values.mean() == pytest.approx((lowest + 2) / 2, abs=0.04)
    assert env.places.flatten().bincount(minlength=81).float().std() < 40  # about the square root of 494
