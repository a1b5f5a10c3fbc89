"""Evaluator in context during training: the episodes that count, and the score."""

import pytest
import torch
from harness import SMALL
from torch import Tensor

from icrl.app.compose import load_config
from icrl.app.root import Config
from icrl.config.options import replace
from icrl.contracts import Step
from icrl.envs import make_env
from icrl.envs.rooms import STAY, UP
from icrl.evaluation import trained
from icrl.evaluation.trained import InContextEvaluator
from icrl.nn.gpt import GPT
from icrl.runs.evaluations import Evaluation

# A room of 3 x 3 cells: one step from its centre, where episodes start, leads to the goals of the tasks 1 and 6.
ABOVE, BELOW = 1, 6
WORLD = ("env.size=3", "env.random_start=false", "env.terminate_on_goal=true", "env.max_episode_steps=4")
CONFIG = load_config([*SMALL, *WORLD, "policy.temperature=0.5", "policy.context_kept=0.25"])
ENV = make_env(CONFIG.env)


def config_of(episodes: int, streams: int, probability: float) -> Config:
    options = {"num_eval_episodes": episodes, "num_eval_environments": streams, "sample_probability": probability}
    return replace(CONFIG, evals=replace(CONFIG.evals, **options))


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
