import numpy as np
import pytest
import torch

from src.config import load_config
from src.contracts import Rollout
from src.envs import make_env
from src.envs.base import Scene
from src.evaluation.in_context import play_episodes
from src.evaluation.references import chance
from src.evaluation.walks import HOLD, Walk, film, side_by_side, walks_of

ROOM = Scene(3, 3, (5,))


def test_walks_join_up_and_end_where_the_episode_ended():
    config = load_config(["env.size=3", "env.max_episode_steps=6"])
    env = make_env(config.env)
    adaptation, played = play_episodes(chance(env, config), env, env.all_tasks()[:2], 2, num_episodes=6, seed=0)
    for stream in range(4):
        goal = int(env.all_tasks()[stream // 2, 0])
        walks = walks_of(env, played, stream)
        lengths = adaptation.steps_to_goal[stream // 2, stream % 2]
        for walk, length in zip(walks, lengths, strict=False):
            assert walk.cells[0] == 4
            assert len(walk.cells) == len(walk.rewarded) == length + 1
            np.testing.assert_array_equal(walk.rewarded, walk.cells == goal)
            for here, there in zip(walk.cells, walk.cells[1:], strict=False):
                assert there in {int(env._next_cell[here * 5 + action]) for action in range(5)}
    done = (played.terminated | played.truncated).sum(0)
    assert [len(walks_of(env, played, stream)) for stream in range(4)] == done.tolist()
    assert isinstance(done, torch.Tensor)


@pytest.mark.parametrize("show_key", [False, True])
def test_walks_with_a_key_stay_in_the_room(show_key: bool) -> None:
    """A reward at the key and one at the door, which ends the walk."""
    config = load_config(["env=dark_key_to_door", "env.size=3", f"env.show_key={show_key}"])
    env = make_env(config.env)
    tasks = env.all_tasks()[[0, 40]]
    _, played = play_episodes(chance(env, config), env, tasks, 1, num_episodes=6, seed=0)
    for stream, task in enumerate(tasks.tolist()):
        for walk in walks_of(env, played, stream):
            assert walk.cells[walk.rewarded].tolist() == task[: walk.rewarded.sum()]
            assert walk.cells.max() < 9 and not walk.rewarded[:-1].sum() > 1


def test_walks_in_a_bandit_show_the_arm_that_was_pulled() -> None:
    env = make_env(load_config(["env=bandit_gaussian", "env.num_arms=3", "env.max_episode_steps=3"]).env)
    values = env.spec.reward_values
    reward = torch.tensor([values.index(value) for value in (-1.0, 0.0, 0.5)])[:, None]
    nothing = torch.zeros(3, 1, dtype=torch.long)
    action, time = torch.tensor([[2], [0], [1]]), torch.arange(3)[:, None]
    (walk,) = walks_of(env, Rollout(nothing, action, reward, nothing, time, nothing.bool(), time == 2, nothing), 0)
    assert walk.cells.tolist() == [2, 2, 0, 1]
    assert walk.rewarded.tolist() == [False, False, False, True]


def test_films_play_one_walk_after_the_other():
    walks = [Walk(np.array([4, 5]), np.array([False, True])), Walk(np.array([4, 4, 1]), np.zeros(3, bool))]
    frames = film(walks, ROOM, cell_pixels=16)
    assert len(frames) == 2 + 3 + 2 * HOLD
    np.testing.assert_array_equal(frames[1], frames[HOLD])  # the end is held
    assert (frames[0] != frames[1]).any()


def test_rows_and_columns_of_a_comparison():
    walk = Walk(np.array([4, 5]), np.array([False, True]))
    row = [("episode 1", walk), ("episode 5", walk), ("episode 9", walk)]
    frames = side_by_side([("model", row), ("A2C", row)], ROOM)
    assert frames.shape[0] == 2 + HOLD
    assert frames.shape[2] > frames.shape[1] * 0.9  # three columns, two rows of captioned squares
    assert frames.shape[1] % 2 == frames.shape[2] % 2 == 0
