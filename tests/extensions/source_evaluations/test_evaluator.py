"""Evaluator of source agents during training: the episodes that count, the choice of actions, and the score."""

import pickle
from dataclasses import replace as changed
from typing import Any

import pytest
import torch
from harness import SMALL
from installed import needs
from refusals import check_refusal
from torch import Tensor

from icrl import extensions
from icrl.app.compose import load_config
from icrl.app.root import Config
from icrl.config.options import replace
from icrl.contracts import Step
from icrl.envs import make_env
from icrl.envs.rooms import NUM_ACTIONS, STAY, UP
from icrl.extensions.source_evaluations import plugin
from icrl.extensions.source_evaluations.plugin import SourceEvaluator
from icrl.sources.learners import Learner

# A room of 3 x 3 cells: one step from its centre, where episodes start, leads to the goals of the tasks 1 and 6.
ABOVE, BELOW, CENTRE = 1, 6, 4
WORLD = ("env.size=3", "env.random_start=false", "env.terminate_on_goal=true", "env.max_episode_steps=4")
TABLES = ("source=q_learning", "source.epsilon=0.5") if "value_sources" in extensions.NAMES else ()
CONFIG = load_config([*SMALL, *TABLES, "source.num_envs=4", *WORLD])
ENV = make_env(CONFIG.env)
ONE_STEP = replace(CONFIG, env=replace(CONFIG.env, max_episode_steps=1))


def config_of(episodes: int, streams: int, probability: float = 1.0, config: Config = CONFIG) -> Config:
    options = {"num_eval_episodes": episodes, "num_eval_environments": streams, "sample_probability": probability}
    return replace(config, evals=replace(config.evals, **options))


class TwoStreams(Learner):
    """Even streams go up three times, then stay; odd ones stay for four steps, then go up. With the goal above the
    start and four steps an episode, the returns are 1, 1, 1, 0, 0, ... and 0, 1, 1, ..."""

    num_steps = 0
    state: Any = None

    def __init__(self) -> None: ...

    def load_state_dict(self, state: Any) -> None:
        self.state = state

    def action_probabilities(self, step: Step) -> Tensor:
        assert self.state == "trained"
        self.num_steps += 1
        even = torch.arange(len(step.obs)) % 2 == 0
        goes_up = even if self.num_steps <= 3 else ~even if self.num_steps > 4 else torch.zeros_like(even)
        return torch.eye(NUM_ACTIONS)[torch.where(goes_up, UP, STAY)]


@pytest.mark.parametrize(
    ("episodes", "streams", "returns"),
    [
        (1, 1, [1, 0]),
        (2, 2, [1, 0]),  # the first two to end over both streams would be two of the even one
        (5, 2, [1, 1, 1, 0, 1, 1]),
        (10, 4, [1, 1, 1, 0, 1, 1]),
    ],
)
def test_the_first_episodes_of_each_stream_of_an_agent_count(monkeypatch, episodes, streams, returns):
    monkeypatch.setattr(plugin, "make_learners", lambda *_: (TwoStreams(), None, None))
    found = SourceEvaluator(config_of(episodes, streams), [ABOVE, BELOW])({"learner": "trained"})
    mean = sum(returns) / len(returns) / 2
    length = (sum(1 if value else 4 for value in returns) / len(returns) + 4) / 2
    assert found.metrics == pytest.approx({"return": mean, "success": mean, "episode_length": length})
    assert found.score == found.metrics["return"]


def table_of(*best: int) -> dict[str, Any]:
    """State of learners with this best action at the start, on all tasks."""
    table = torch.zeros(len(best), ENV.spec.num_obs, NUM_ACTIONS)
    table[range(len(best)), CENTRE, best] = 1.0
    return {"learner": {"table": table.flatten(0, 1), "clock": [0.5, 1, 2, 3]}}


@needs("value_sources")
@pytest.mark.parametrize(("probability", "expected"), [(0.0, 0.5), (0.5, 0.425), (1.0, 0.35)])
def test_agents_sample_with_the_configured_probability(probability: float, expected: float) -> None:
    """One agent goes up with probability 0.6, the other with 0.1; greedily, the first alone does."""
    found = SourceEvaluator(config_of(4000, 1000, probability, ONE_STEP), [ABOVE])(table_of(UP, STAY))
    assert found.score == pytest.approx(expected, abs=0.0 if probability == 0 else 0.03)
    assert found.metrics == {"return": found.score, "success": found.score, "episode_length": 1.0}


@needs("value_sources")
def test_an_evaluation_depends_on_state_and_seed_alone() -> None:
    """Here and in another process, whatever was drawn before."""
    evaluator = SourceEvaluator(config_of(8, 2, config=ONE_STEP), [ABOVE])
    found = evaluator(table_of(UP, STAY))
    torch.manual_seed(99)
    assert pickle.loads(pickle.dumps(evaluator))(table_of(UP, STAY)) == found
    others = [changed(evaluator, config=replace(evaluator.config, seed=seed)) for seed in range(1, 6)]
    assert any(other(table_of(UP, STAY)) != found for other in others)


@needs("searchers")
def test_agents_that_need_their_past_are_refused() -> None:
    options = ["source=searcher", "source.noise=0.1", "source.evaluate=true"]
    check_refusal(load_config, options, ["source.evaluate=true", "source.name=searcher"])
