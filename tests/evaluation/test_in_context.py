import numpy as np
import pytest

from src.config import load_config
from src.contracts import Rollout
from src.envs import make_env
from src.envs.tasks import streams_of
from src.evaluation.in_context import Adaptation, adaptation_of, play_episodes, summary_of
from src.evaluation.references import OptimalPolicy, RandomPolicy, Searcher


def scalar_adaptation(transitions: Rollout, num_episodes: int) -> np.ndarray:
    """Return, success, steps to goal and length of each stream's episodes, by a walk through the steps: [4, B, E]."""
    num_steps, num_streams = transitions.obs.shape
    found = np.zeros((4, num_streams, num_episodes))
    for b in range(num_streams):
        episode, total, length, first = 0, 0, 0, None
        for t in range(num_steps):
            length += 1
            total += int(transitions.reward[t, b])
            if transitions.reward[t, b] and first is None:
                first = length
            if transitions.terminated[t, b] or transitions.truncated[t, b]:
                if episode < num_episodes:
                    found[:, b, episode] = total, total > 0, first or length, length
                episode, total, length, first = episode + 1, 0, 0, None
        assert episode >= num_episodes
    return found


@pytest.mark.parametrize("env_name", ["dark_room", "dark_room_classic"])
def test_episodes_are_cut_where_they_end(env_name):
    env = make_env(load_config([f"env={env_name}", "env.size=3", "env.max_episode_steps=6"]).env)
    tasks = env.all_tasks()[:4]
    adaptation, played = play_episodes(RandomPolicy(5), env, tasks, num_streams=3, num_episodes=7, seed=1)
    expected = scalar_adaptation(played, 7).reshape(4, 4, 3, 7)
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


def test_the_summary_sees_learning() -> None:
    """The searcher improves within its first episodes: late is better than first, and its late reward than random's."""
    env = make_env(load_config(["env.size=5", "env.max_episode_steps=10"]).env)
    tasks = env.all_tasks()
    searcher, random = (
        summary_of(play_episodes(policy, env, tasks, num_streams=4, num_episodes=6, seed=0)[0])
        for policy in (Searcher(env), RandomPolicy(5))
    )
    assert searcher["first_success"] < searcher["last_success"] == 1.0
    assert searcher["late_reward"] > 2 * random["late_reward"]
    assert random["last_success"] == pytest.approx(random["last_return"])


def test_the_summary_by_hand() -> None:
    """Two streams of three episodes: the late ones are the last two."""
    returns = np.array([[[0.0, 1.0, 1.0], [1.0, 0.0, 3.0]]])
    lengths = np.array([[[9.0, 5.0, 3.0], [9.0, 9.0, 3.0]]])
    assert summary_of(Adaptation(returns, (returns > 0).astype(float), lengths, lengths)) == {
        "first_success": 0.5,
        "first_return": 0.5,
        "last_success": 1.0,
        "last_return": 2.0,
        "late_reward": 5 / 20,
    }
