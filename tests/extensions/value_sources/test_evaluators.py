"""Evaluators during training: the episodes that count, the choice of actions, and the score."""

import pickle
from dataclasses import replace as changed
from typing import Any

import pytest
import torch
from harness import SMALL
from torch import Tensor

from icrl.app.compose import load_config
from icrl.app.root import Config
from icrl.config.options import replace
from icrl.contracts import Step
from icrl.envs import make_env
from icrl.envs.rooms import NUM_ACTIONS, STAY, UP
from icrl.evaluation import trained
from icrl.evaluation.trained import InContextEvaluator, SourceEvaluator
from icrl.nn.gpt import GPT
from icrl.runs.evaluations import Evaluation
from icrl.sources.learners import Learner

# A room of 3 x 3 cells: one step from its centre, where episodes start, leads to the goals of the tasks 1 and 6.
ABOVE, BELOW, CENTRE = 1, 6, 4
CPU = torch.device("cpu")
CONFIG = load_config(
    [
        *(*SMALL, "source=q_learning", "source.num_envs=4", "source.epsilon=0.5"),
        *("env.size=3", "env.random_start=false", "env.terminate_on_goal=true", "env.max_episode_steps=4"),
        *("policy.temperature=0.5", "policy.context_kept=0.25"),
    ]
)
ENV = make_env(CONFIG.env)
ONE_STEP = replace(CONFIG, env=replace(CONFIG.env, max_episode_steps=1))


def config_of(episodes: int, streams: int, probability: float = 1.0, config: Config = CONFIG) -> Config:
    options = {"num_eval_episodes": episodes, "num_eval_environments": streams, "sample_probability": probability}
    return replace(config, evals=replace(config.evals, **options))


# ---- source agents


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
    monkeypatch.setattr(trained, "make_learners", lambda *_: (TwoStreams(), None, None))
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


@pytest.mark.parametrize(("probability", "expected"), [(0.0, 0.5), (0.5, 0.425), (1.0, 0.35)])
def test_agents_sample_with_the_configured_probability(probability: float, expected: float) -> None:
    """One agent goes up with probability 0.6, the other with 0.1; greedily, the first alone does."""
    found = SourceEvaluator(config_of(4000, 1000, probability, ONE_STEP), [ABOVE])(table_of(UP, STAY))
    assert found.score == pytest.approx(expected, abs=0.0 if probability == 0 else 0.03)
    assert found.metrics == {"return": found.score, "success": found.score, "episode_length": 1.0}


def test_an_evaluation_depends_on_state_and_seed_alone() -> None:
    """Here and in another process, whatever was drawn before."""
    evaluator = SourceEvaluator(config_of(8, 2, config=ONE_STEP), [ABOVE])
    found = evaluator(table_of(UP, STAY))
    torch.manual_seed(99)
    assert pickle.loads(pickle.dumps(evaluator))(table_of(UP, STAY)) == found
    others = [changed(evaluator, config=replace(evaluator.config, seed=seed)) for seed in range(1, 6)]
    assert any(other(table_of(UP, STAY)) != found for other in others)


# ---- the model in context


class LatePolicy:
    """In place of the model's policy: it stays in a stream's first two episodes, and goes up in all that follow."""

    def __init__(self, model: GPT, *options: float) -> None:
        LatePolicy.model, LatePolicy.options = model, options

    def initial_carry(self, num_streams: int) -> Tensor:
        LatePolicy.num_streams = num_streams
        return torch.zeros(num_streams, dtype=torch.long)  # episodes begun

    def act(self, carry: Tensor, step: Step, noise: Tensor) -> tuple[Tensor, Tensor]:
        carry = carry + (step.timestep == 0)
        return torch.where(carry > 2, UP, STAY), carry


@pytest.mark.parametrize(
    ("episodes", "streams", "last", "late"),
    [
        (2, 2, 0.0, 0.0),  # one episode each: it is the first, the last and the second half
        (5, 2, 1.0, 1 / 5),  # three each, of which the last two count as late: 4 steps without reward and 1 with
        (7, 2, 1.0, 2 / 2),
        (3, 1, 1.0, 1 / 5),
    ],
)
def test_the_first_episodes_of_each_stream_in_context_count(monkeypatch, episodes, streams, last, late):
    monkeypatch.setattr(trained, "GPTPolicy", LatePolicy)
    model = GPT(CONFIG.model, ENV.spec)
    for task, at_last, score in ((ABOVE, last, late), (BELOW, 0.0, 0.0)):
        found = InContextEvaluator(config_of(episodes, streams, 0.75), [task])({"model": model.state_dict()})
        metrics = {"first_success": 0.0, "first_return": 0.0, "last_success": at_last, "last_return": at_last}
        expected = {f"development_{name}": value for name, value in (metrics | {"late_reward": score}).items()}
        assert found == Evaluation(expected, score)
    assert LatePolicy.options == (0.75, 0.5, 0.25) and LatePolicy.num_streams == streams
    played = LatePolicy.model.state_dict()
    assert all(torch.equal(value, played[name]) for name, value in model.state_dict().items())
