import numpy as np
import torch

from src.config import load_config
from src.envs import make_env
from src.evaluation.in_context import play_episodes
from src.evaluation.references import RandomPolicy
from src.evaluation.walks import HOLD, Walk, film, side_by_side, walks_of


def test_walks_join_up_and_end_where_the_episode_ended():
    env = make_env(load_config(["env.size=3", "env.max_episode_steps=6"]).env)
    adaptation, played = play_episodes(RandomPolicy(5), env, env.all_tasks()[:2], 2, num_episodes=6, seed=0)
    for stream in range(4):
        goal = int(env.all_tasks()[stream // 2, 0])
        walks = walks_of(played, stream)
        lengths = adaptation.steps_to_goal[stream // 2, stream % 2]
        for walk, length in zip(walks, lengths, strict=False):
            assert walk.cells[0] == 4
            assert len(walk.cells) == len(walk.rewarded) == length + 1
            np.testing.assert_array_equal(walk.rewarded, walk.cells == goal)
            for here, there in zip(walk.cells, walk.cells[1:], strict=False):
                assert there in {int(env._next_cell[here * 5 + action]) for action in range(5)}
    done = (played.terminated | played.truncated).sum(0)
    assert [len(walks_of(played, stream)) for stream in range(4)] == done.tolist()
    assert isinstance(done, torch.Tensor)


def test_films_play_one_walk_after_the_other():
    walks = [Walk(np.array([4, 5]), np.array([False, True])), Walk(np.array([4, 4, 1]), np.zeros(3, bool))]
    frames = film(walks, goal=5, size=3, cell_pixels=16)
    assert len(frames) == 2 + 3 + 2 * HOLD
    np.testing.assert_array_equal(frames[1], frames[HOLD])  # the end is held
    assert (frames[0] != frames[1]).any()


def test_rows_and_columns_of_a_comparison():
    walk = Walk(np.array([4, 5]), np.array([False, True]))
    row = [("episode 1", walk), ("episode 5", walk), ("episode 9", walk)]
    frames = side_by_side([("model", row), ("A2C", row)], goal=5, size=3)
    assert frames.shape[0] == 2 + HOLD
    assert frames.shape[2] > frames.shape[1] * 0.9  # three columns, two rows of captioned squares
    assert frames.shape[1] % 2 == frames.shape[2] % 2 == 0
