"""Trials of several episodes as Gymnasium episodes: by hand, by Gymnasium's checker, and with policies from outside."""

import runpy
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.spaces import Tuple as TupleSpace
from gymnasium.utils.env_checker import check_env

from icrl.contracts import ConfigError
from icrl.envs.rooms import DOWN, UP
from icrl.extensions.as_gymnasium.trials import TrialEnv, play_trials
from icrl.runs.files import PROJECT


def room(goal: tuple[int, int], size: int = 3, steps: int = 3) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("icrl:icrl/DarkRoom-v0", size=size, max_episode_steps=steps, goal=goal)


def test_a_trial_by_hand() -> None:
    env = TrialEnv([room((0, 1))], num_episodes=2)
    obs, info = env.reset(seed=0)
    start = obs["obs"]
    assert (obs["action"], obs["reward"], obs["start"], info["returns"]) == (0, 0.0, 1, [])
    obs, reward, terminated, truncated, info = env.step(UP)
    assert (reward, terminated, truncated, info["returns"]) == (1.0, False, False, [1.0])
    assert (obs["obs"], obs["action"], obs["reward"], obs["start"]) == (start, UP, 1.0, 1), "the next episode"
    for step in range(3):
        obs, reward, terminated, truncated, info = env.step(DOWN)
        last = step == 2
        assert (reward, terminated, truncated, obs["start"]) == (0.0, False, last, int(last))
    assert info["returns"] == [1.0, 0.0]


def test_the_seed_draws_the_task_and_an_option_chooses_it() -> None:
    envs = [room((0, column)) for column in range(3)]
    env = TrialEnv(envs, num_episodes=1)
    env.reset(seed=3)
    drawn = [envs.index(env._env)]
    for _ in range(30):
        env.reset()
        drawn.append(envs.index(env._env))
    assert {*drawn} == {0, 1, 2}
    env.reset(seed=3)
    assert envs.index(env._env) == drawn[0]
    env.reset(seed=3, options={"task": 2})
    assert env._env is envs[2]
    for wrong in (3, -1, "a", np.array([0, 1])):
        with pytest.raises(ValueError, match="must be an int from 0 to 2"):
            env.reset(options={"task": wrong})


@pytest.mark.filterwarnings("ignore:.*infinity")
def test_gymnasium_has_no_complaint() -> None:
    check_env(TrialEnv([room((0, 0)), room((2, 2))], num_episodes=2), skip_render_check=True)
    check_env(TrialEnv([gymnasium.make("CartPole-v1", max_episode_steps=5)], num_episodes=2), skip_render_check=True)


def test_a_policy_with_memory_is_better_in_later_episodes() -> None:
    """It tries one direction after the other until one is rewarded, and keeps to that."""

    def predict(obs: Any, state: Any, episode_start: Any) -> tuple[int, Any]:
        assert (state is None) == bool(episode_start[0])
        action = UP if state is None else state
        if obs["start"] and state is not None and obs["reward"] == 0:
            action += 1
        return action, action

    goals = ((0, 1), (1, 2), (2, 1), (1, 0))  # one step up, right, down and left of the start
    returns = play_trials(predict, TrialEnv([room(goal, steps=1) for goal in goals], num_episodes=4), num_streams=2)
    expected = np.triu(np.ones((4, 4)))  # goal g is found in episode g and from then on
    np.testing.assert_array_equal(returns, np.repeat(expected[:, None], 2, axis=1))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: TrialEnv([room((0, 0))], num_episodes=0), "num_episodes=0"),
        (lambda: TrialEnv([], num_episodes=1), "envs"),
        (lambda: TrialEnv([room((0, 0)), room((0, 0), size=4)], num_episodes=1), "spaces"),
        (lambda: TrialEnv([OddActions()], num_episodes=1), "actions"),
        (lambda: play_trials(lambda **_: (0, None), TrialEnv([room((0, 0))], num_episodes=1), 0), "num_streams=0"),
    ],
)
def test_wrong_environments_are_refused(make: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        make()


@pytest.mark.parametrize(
    ("space", "action"),
    [
        *((Discrete(3, start=2), 2), (Discrete(5, start=-2), 0), (Discrete(2, start=-4), -3)),
        *((MultiDiscrete([2, 3], start=[1, 5]), [1, 5]), (MultiDiscrete([2, 3], start=[-1, -7]), [0, -5])),
        (Box(0.5, 1.0, (2,)), [0.5, 0.5]),
    ],
)
def test_the_action_before_the_first_is_that_of_the_space_nearest_to_0(space: Any, action: Any) -> None:
    env = OddActions()
    env.action_space = space
    trial = TrialEnv([env], num_episodes=1)
    assert trial.observation_space["action"].contains(trial._no_action)
    np.testing.assert_array_equal(trial._no_action, action)


class OddActions(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Discrete(2)
    action_space = TupleSpace((gymnasium.spaces.Discrete(2),))


def test_the_example_with_another_librarys_agent_runs(capsys: Any) -> None:
    """With two episodes in place of eight."""
    main = runpy.run_path(str(PROJECT / "examples/as_gymnasium/recurrent_ppo.py"))["main"]
    main.__globals__["EPISODES"] = 2
    main(num_steps=1, num_streams=1)
    before, after = capsys.readouterr().out.splitlines()
    for name, line in (("before", before), ("after", after)):
        told, *shares = line.rsplit(maxsplit=2)
        assert told.startswith(f"{name} training") and all(0 <= float(share) <= 1 for share in shares)
