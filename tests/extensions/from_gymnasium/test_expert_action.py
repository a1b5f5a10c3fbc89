"""Experts that environments bring: `info["expert_action"]` as the best action, and shortest ways in levels of cells."""

import re
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from masked_env import LEFT, RIGHT, options_of
from toy_env import played

from icrl.app.compose import load_config
from icrl.contracts import ConfigError
from icrl.envs import make_env
from icrl.extensions.from_gymnasium.border import read_expert
from icrl.randomness import stream_seeds
from icrl.spaces import EnvSpec

TASKS = [{"goal": goal} for goal in range(5)]
GUIDED = (*options_of(TASKS, "Guided"), "env.expert=info")


def test_the_best_action_is_what_the_environment_says() -> None:
    """In this process and in workers, after resets and steps; whoever follows it goes straight."""
    config: Any = load_config(GUIDED).env
    tasks, goals = torch.arange(5)[:, None], torch.arange(5)
    with closing(make_env(config)) as env, closing(played(config, 1)) as processes:
        assert env.has_planner and not env.is_exact
        (state, step), (other_state, other) = (world.reset(tasks, stream_seeds(0, 5)) for world in (env, processes))
        for _ in range(30):
            cell = step.obs[:, 0]
            assert torch.equal(step.optimal_action, torch.where(goals > cell, RIGHT, LEFT))
            assert all(torch.equal(*pair) for pair in zip(step, other, strict=True))
            distance = (goals - cell).abs()
            state, step = env.step(state, step.optimal_action)
            other_state, other = processes.step(other_state, other.optimal_action)
            assert torch.equal(step.reward, (distance == 1).float())


@pytest.mark.parametrize(
    ("told", "part"),
    [(3, "is 3: must be an action"), ("left", "is left"), (2, "is 2, which info['action_mask'] forbids")],
)
def test_wrong_actions_are_refused_before_any_work(told: Any, part: str) -> None:
    tasks = [{"goal": 0}, {"goal": 1, "told": told}]
    with pytest.raises(ConfigError, match=r"env.tasks\[1\].*" + re.escape(part)):
        make_env(load_config((*options_of(tasks, "Guided"), "env.expert=info")).env)
    with pytest.raises(ConfigError, match="env.expert: there is no nobody: must be none, info, or module:Class"):
        make_env(load_config((*options_of(TASKS), "env.expert=nobody")).env)
    with pytest.raises(ConfigError, match="info\\['expert_action'\\] is missing"):
        make_env(load_config((*options_of(TASKS), "env.expert=info")).env)


def test_actions_of_every_space() -> None:
    spaces = [
        (Discrete(3), 2, 2),
        (MultiDiscrete([2, 3]), [1, 2], [1, 2]),
        (Box(-1, 2, (2,)), [9.0, -9.0], [2.0, -1.0]),
    ]
    for space, told, expected in spaces:
        spec = EnvSpec(Discrete(2), space, (), 0, 5)
        assert np.array_equal(read_expert({"expert_action": told}, spec, 0), expected)
        for wrong in (np.nan, [0, 1, 2], None):
            with pytest.raises(ValueError, match="must be an action in"):
                read_expert({"expert_action": wrong}, spec, 0)
