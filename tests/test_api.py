"""Public front of the library, its examples and the scripts in `examples/`."""

import doctest
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

import icrl
from icrl.config.paths import PROJECT
from icrl.contracts import ConfigError

pytestmark = pytest.mark.quick
ROOM = {"goal": (0, 1), "size": 3, "max_episode_steps": 4}  # the world of the fixture `finished`


def test_examples_of_docstrings_run():
    found = doctest.testmod(sys.modules[icrl.load.__module__], extraglobs={"icrl": icrl})
    assert found.attempted >= 3 and not found.failed


def test_a_loaded_model_acts_in_single_and_batched_environments_alike(finished):
    assert icrl.open_histories(finished / "histories/tiny").columns["action"].ndim == 2
    policy = icrl.load(finished / "logs/tiny", seed=3)
    single = icrl.rollout(policy, gymnasium.make("icrl:icrl/DarkRoom-v0", **ROOM), num_episodes=4)
    batch = gymnasium.make_vec("icrl:icrl/DarkRoom-v0", num_envs=3, **ROOM)
    returns = icrl.rollout(policy, batch, num_episodes=4)
    assert returns.shape == (3, 4) and set(returns.ravel()) <= {0.0, 1.0}
    np.testing.assert_array_equal(returns[:1], single)  # more streams change none


def test_it_plays_as_evaluation_does(finished):
    """Greedy actions in a room that is stepped by hand equal those of the tensor world."""
    policy = icrl.load(finished / "logs/tiny", temperature=0)
    env = icrl.make_env("dark_room", "env.size=3", "env.max_episode_steps=4")
    played = icrl.evaluate(policy, env, torch.tensor([[1]]), num_episodes=3, num_streams=1)
    by_hand = icrl.rollout(policy, gymnasium.make("icrl:icrl/DarkRoom-v0", **ROOM), num_episodes=3)
    np.testing.assert_array_equal(played.returns[0], by_hand)


def test_wrong_steps_are_refused(finished):
    policy = icrl.load(finished / "logs/tiny")
    with pytest.raises(ValueError, match="reward=None"):
        policy.act([0], reward=[0.0])
    policy.act([4])
    for step, said in (
        (([4],), "reward=None"),
        (([4], [0.5], [False], [False]), r"knows only the rewards \[0\.0, 1\.0\]"),
        (([99], [0.0], [False], [False]), "obs is 99"),
    ):
        with pytest.raises(ValueError, match=said):
            policy.act(*step)
    next_step = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    assert next_step.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    with pytest.raises(ConfigError, match="SAME_STEP"):
        icrl.rollout(policy, next_step, num_episodes=1)
    with pytest.raises(ConfigError, match="no finished training"):
        icrl.load(finished / "logs/other")


@pytest.mark.parametrize("example", ["act.py logs", "read_histories.py histories", "film_learning.py logs"])
def test_scripts_of_examples_run(example, finished, tmp_path):
    script, folder = example.split()
    command = [sys.executable, PROJECT / "examples" / script, finished / folder / "tiny", tmp_path / "film.gif"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "[" in done.stdout
