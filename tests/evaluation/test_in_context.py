import numpy as np
import pytest
import torch

from src.config import load_config
from src.contracts import Rollout
from src.envs import make_env
from src.envs.tasks import streams_of
from src.evaluation.in_context import adaptation_of, play_episodes, play_steps
from src.evaluation.references import OptimalPolicy, RandomPolicy, Searcher


def scalar_adaptation(transitions: Rollout, num_episodes: int) -> np.ndarray:
    """Return, success and steps to goal of each stream's episodes, by a walk through the steps: [3, B, E]."""
    num_steps, num_streams = transitions.obs.shape
    found = np.zeros((3, num_streams, num_episodes))
    for b in range(num_streams):
        episode, total, length, first = 0, 0, 0, None
        for t in range(num_steps):
            length += 1
            total += int(transitions.reward[t, b])
            if transitions.reward[t, b] and first is None:
                first = length
            if transitions.terminated[t, b] or transitions.truncated[t, b]:
                if episode < num_episodes:
                    found[:, b, episode] = total, total > 0, first or length
                episode, total, length, first = episode + 1, 0, 0, None
        assert episode >= num_episodes
    return found


@pytest.mark.parametrize("env_name", ["dark_room", "dark_room_classic"])
def test_episodes_are_cut_where_they_end(env_name):
    env = make_env(load_config([f"env={env_name}", "env.size=3", "env.max_episode_steps=6"]).env)
    tasks = env.all_tasks()[:4]
    adaptation, played = play_episodes(RandomPolicy(5), env, tasks, num_streams=3, num_episodes=7, seed=1)
    expected = scalar_adaptation(played, 7).reshape(3, 4, 3, 7)
    np.testing.assert_array_equal(np.stack(adaptation), expected)


def test_streams_are_grouped_by_task():
    env = make_env(load_config(["env.size=5"]).env)
    tasks = env.all_tasks()[[0, 7, 23]]
    policy = OptimalPolicy(env, streams_of(tasks, 2))
    adaptation, _ = play_episodes(policy, env, tasks, num_streams=2, num_episodes=3, seed=0)
    distance = [abs(goal // 5 - 2) + abs(goal % 5 - 2) for goal in tasks[:, 0].tolist()]
    assert adaptation.steps_to_goal.tolist() == [[[d] * 3] * 2 for d in distance]


def test_a_stream_does_not_depend_on_the_others():
    env = make_env(load_config(["env.size=5"]).env)
    tasks = env.all_tasks()
    many, _ = play_episodes(RandomPolicy(5), env, tasks[:6], num_streams=1, num_episodes=5, seed=3)
    few, _ = play_episodes(RandomPolicy(5), env, tasks[:2], num_streams=1, num_episodes=5, seed=3)
    np.testing.assert_array_equal(np.stack(few), np.stack(many)[:, :2])


def test_too_few_episodes_are_an_error():
    env = make_env(load_config(["env.size=3"]).env)
    _, played = play_episodes(RandomPolicy(5), env, env.all_tasks()[:1], num_streams=1, num_episodes=2, seed=0)
    with pytest.raises(ValueError, match="1000 finished episodes"):
        adaptation_of(played, 1, 1000)


def test_the_quick_look_sees_learning():
    """The searcher improves within its first episodes: late is better than first, and its late reward than random's."""
    env = make_env(load_config(["env.size=5", "env.max_episode_steps=10"]).env)
    tasks = env.all_tasks()
    searcher = play_steps(Searcher(env), env, tasks, num_streams=4, num_steps=60, seed=0)
    random = play_steps(RandomPolicy(5), env, tasks, num_streams=4, num_steps=60, seed=0)
    assert searcher["first_success"] < searcher["last_success"] == 1.0
    assert searcher["late_reward"] > 2 * random["late_reward"]
    assert random["last_success"] == pytest.approx(random["last_return"])
    assert torch.is_grad_enabled()
