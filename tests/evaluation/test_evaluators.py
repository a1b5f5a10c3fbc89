"""Evaluations amid training against counts by hand: which episodes count, how actions are chosen, what the score is."""

import pickle
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from icrl.collection.collect import make_learners
from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.config.root import Config
from icrl.contracts import ConfigError, Step
from icrl.envs import make_env
from icrl.envs.rooms import NUM_ACTIONS, STAY, UP
from icrl.evaluation import evaluators as periodic
from icrl.evaluation.evaluators import InContextEvaluator, SourceEvaluator, check_streams, spread_of
from icrl.nn.gpt import GPT
from icrl.runs.evaluations import Evaluation
from icrl.sources.experts import NoiseDistillation
from icrl.sources.q_learning import QLearning

# A room of 3 x 3 cells: from its centre, where episodes start, one step leads to the goals of the tasks 1 and 6.
ABOVE, BELOW = 1, 6
CENTRE = 4
CONFIG = load_config(
    [
        *("device=cpu", "source=q_learning", "source.num_learners=2", "source.num_envs=4", "source.epsilon=0.5"),
        *("env.size=3", "env.random_start=false", "env.terminate_on_goal=true", "env.max_episode_steps=4"),
        *("model.context_len=8", "model.embed_dim=8", "model.num_layers=1", "model.num_heads=2", "model.ff_dim=16"),
        *("policy.temperature=0.5", "policy.context_kept=0.25"),
    ]
)
ENV = make_env(CONFIG.env)
ONE_STEP = replace(CONFIG, env=replace(CONFIG.env, max_episode_steps=1))


def config_of(episodes: int, streams: int, epsilon: float = 1.0, config: Config = CONFIG) -> Config:
    options = {"num_eval_episodes": episodes, "num_eval_environments": streams, "epsilon_greedy": epsilon}
    return replace(config, evals=replace(config.evals, **options))


@given(st.integers(1, 1000), st.integers(1, 50))
def test_streams_play_as_few_episodes_each_as_make_all(episodes: int, streams: int) -> None:
    options = replace(CONFIG.evals, num_eval_episodes=episodes, num_eval_environments=streams)
    num_streams, each = spread_of(options)
    assert num_streams == streams
    assert each * streams >= episodes > (each - 1) * streams


# ---- source agents


class Moody:
    """Its even streams go up three times and stay then, its odd ones stay for four steps and go up then. With the goal
    above the start and four steps an episode, the returns are 1, 1, 1, 0, 0, ... and 0, 1, 1, ..."""

    def __init__(self) -> None:
        self.num_steps = 0
        self.state: Any = None

    def load_state_dict(self, state: Any) -> None:
        self.state = state

    def action_probabilities(self, step: Step) -> Tensor:
        assert self.state == "trained"
        self.num_steps += 1
        even = torch.arange(len(step.obs)) % 2 == 0
        goes_up = even if self.num_steps <= 3 else ~even if self.num_steps > 4 else torch.zeros_like(even)
        return torch.eye(NUM_ACTIONS)[torch.where(goes_up, UP, STAY)]


@pytest.mark.parametrize(
    ("episodes", "streams", "returns", "lengths"),
    [
        (1, 1, [1, 0], [1, 4]),
        (2, 2, [1, 0], [1, 4]),  # the first two to end over both streams would be two of the even one
        (4, 2, [1, 1, 0, 1], [1, 1, 4, 1]),
        (5, 2, [1, 1, 1, 0, 1, 1], [1, 1, 1, 4, 1, 1]),
        (8, 2, [1, 1, 1, 0, 0, 1, 1, 1], [1, 1, 1, 4, 4, 1, 1, 1]),
        (10, 4, [1, 1, 1, 0, 1, 1], [1, 1, 1, 4, 1, 1]),
    ],
)
def test_the_first_episodes_of_each_stream_of_an_agent_count(
    monkeypatch: pytest.MonkeyPatch, episodes: int, streams: int, returns: list[int], lengths: list[int]
) -> None:
    """Of two agents on the goal above the start, and of two on that below, who all fail. The environments that agents
    learn in do not matter."""
    monkeypatch.setattr(periodic, "make_learners", lambda *_: (Moody(), None, None))
    found = SourceEvaluator(config_of(episodes, streams), [ABOVE, BELOW])({"learner": "trained"})
    mean = sum(returns) / len(returns) / 2
    length = (sum(lengths) / len(lengths) + 4) / 2
    assert found.metrics == pytest.approx({"return": mean, "success": mean, "episode_length": length})
    assert found.score == found.metrics["return"]


def test_returns_and_successes_of_agents_differ_where_a_goal_is_met_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the classic room, where the even streams stand on the goal at each of the 4 steps, and the odd ones never."""
    monkeypatch.setattr(periodic, "make_learners", lambda *_: (Moody(), None, None))
    config = replace(CONFIG, env=replace(CONFIG.env, terminate_on_goal=False))
    found = SourceEvaluator(config_of(2, 2, config=config), [ABOVE])({"learner": "trained"})
    assert found == Evaluation({"return": 2.0, "success": 0.5, "episode_length": 4.0}, 2.0)


def table_of(*best: int) -> dict[str, Any]:
    """The state of learners whose best action at the start is this, on all tasks."""
    table = torch.zeros(len(best), ENV.spec.num_obs, NUM_ACTIONS)
    table[range(len(best)), CENTRE, best] = 1.0
    return {"learner": {"table": table.flatten(0, 1), "clock": [0.5, 1, 2, 3]}}


@pytest.mark.parametrize(("epsilon", "expected"), [(0.0, 0.5), (0.5, 0.425), (1.0, 0.35)])
def test_agents_act_at_epsilon(epsilon: float, expected: float) -> None:
    """One agent goes up with probability 0.6, the other with 0.1; as the most probable action, the first alone does."""
    config = config_of(8000, 1000, epsilon, ONE_STEP)
    found = SourceEvaluator(config, [ABOVE])(table_of(UP, STAY))
    assert found.score == pytest.approx(expected, abs=0.0 if epsilon == 0 else 0.02)
    assert found.metrics == {"return": found.score, "success": found.score, "episode_length": 1.0}


def test_what_is_found_of_agents_depends_on_state_and_seed_alone() -> None:
    """Here and in another process, whatever was drawn before."""
    look = SourceEvaluator(config_of(8, 2, config=ONE_STEP), [ABOVE])
    found = look(table_of(UP, STAY))
    torch.manual_seed(99)
    assert pickle.loads(pickle.dumps(look))(table_of(UP, STAY)) == found
    others = [replace(look, config=replace(look.config, seed=seed)) for seed in range(1, 6)]
    assert any(other(table_of(UP, STAY)) != found for other in others)


@pytest.mark.parametrize(("num_teachers", "streams", "fits"), [(1, 3, True), (4, 2, True), (3, 6, True), (3, 2, False)])
def test_streams_are_dealt_out_to_the_learners_of_a_teacher(num_teachers: int, streams: int, fits: bool) -> None:
    """Two learners of a noisy expert on each of two tasks, and `num_teachers` whom it imitates; the same one deeper."""
    config = load_config(
        ["source=noise_distillation", "source.teacher=them", "source.num_learners=2", "source.num_envs=4"]
    )
    config = config_of(100, streams, config=config)
    cpu, spec = torch.device("cpu"), ENV.spec
    pupil, middle = (NoiseDistillation(config.source, spec, torch.arange(4), cpu) for _ in range(2))
    for expert in (QLearning(CONFIG.source, spec, torch.arange(2 * num_teachers), cpu), middle):
        middle.expert, pupil.expert = pupil.expert, expert
        if fits:
            check_streams(config, pupil, 2)
            continue
        with pytest.raises(ConfigError) as refused:
            check_streams(config, pupil, 2)
        fields = ("evals.num_eval_environments=2", "source.num_learners=2", "3 learners", "source.teacher=them")
        assert all(part in str(refused.value) for part in fields)


def test_a_planner_and_learners_without_a_teacher_take_any_number_of_streams() -> None:
    for source in ("optimal", "noise_distillation", "q_learning"):
        config = config_of(
            10,
            7,
            config=load_config(
                [
                    f"source={source}",
                    "source.num_learners=3",
                    "source.num_envs=5",
                    "source.num_env_steps=10000",
                    "source.history_steps=10000",
                    "evaluation.num_episodes=10",
                ]
            ),
        )
        learner, _, _ = make_learners(
            config, make_env(config.env), make_env(config.env).all_tasks()[:2], torch.device("cpu")
        )
        check_streams(config, learner, 2)


# ---- the model in context


class LateBloomer:
    """In place of the model's policy: it stays in a stream's first two episodes, and goes up in all that follow."""

    made: list["LateBloomer"] = []

    def __init__(self, model: GPT, epsilon: float, temperature: float, context_kept: float) -> None:
        self.model, self.options = model, (epsilon, temperature, context_kept)
        self.made.append(self)

    def initial_carry(self, num_streams: int) -> Tensor:
        self.num_streams = num_streams
        return torch.zeros(num_streams, dtype=torch.long)  # episodes begun

    def act(self, carry: Tensor, step: Step, noise: Tensor) -> tuple[Tensor, Tensor]:
        carry = carry + (step.timestep == 0)
        return torch.where(carry > 2, UP, STAY), carry


def model_of(config: Config) -> GPT:
    """Whatever it sees, up has probability 0.6 and each other action 0.1; at temperature 0.5 that is 0.9 and 0.025."""
    model = GPT(config.model, make_env(config.env).spec)
    probabilities = torch.full((NUM_ACTIONS,), 0.1)
    probabilities[UP] = 0.6
    with torch.no_grad():
        model.policy_head.weight.zero_()
        model.policy_head.bias.copy_(probabilities.log())
    return model


@pytest.mark.parametrize(
    ("episodes", "streams", "last", "late"),
    [
        (2, 2, 0.0, 0.0),  # one episode each: it is the first, the last and the second half
        (4, 2, 0.0, 0.0),
        (5, 2, 1.0, 1 / 5),  # three each, of which the last two count as late: 4 steps without reward and 1 with
        (6, 2, 1.0, 1 / 5),
        (7, 2, 1.0, 2 / 2),
        (15, 3, 1.0, 3 / 3),
        (3, 1, 1.0, 1 / 5),
    ],
)
def test_the_first_episodes_of_each_stream_in_context_count(
    monkeypatch: pytest.MonkeyPatch, episodes: int, streams: int, last: float, late: float
) -> None:
    """Of a task with the goal above the start, and of one with the goal below, which is never met."""
    monkeypatch.setattr(periodic, "GPTPolicy", LateBloomer)
    model = model_of(CONFIG)
    found, never = (
        InContextEvaluator(config_of(episodes, streams, 0.75), [task])({"model": model.state_dict()})
        for task in (ABOVE, BELOW)
    )
    none = dict.fromkeys(("first_success", "first_return", "last_success", "last_return", "late_reward"), 0.0)
    metrics = none | {"last_success": last, "last_return": last, "late_reward": late}
    assert found == Evaluation({f"development_{name}": value for name, value in metrics.items()}, late)
    assert never == Evaluation({f"development_{name}": value for name, value in none.items()}, 0.0)
    policy = LateBloomer.made[-1]
    assert policy.options == (0.75, 0.5, 0.25) and policy.num_streams == streams
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in policy.model.state_dict().items())


@pytest.mark.parametrize(("epsilon", "up", "down"), [(0.0, 1.0, 0.0), (0.5, 0.95, 0.0125), (1.0, 0.9, 0.025)])
def test_the_model_acts_at_epsilon(epsilon: float, up: float, down: float) -> None:
    """Episodes of one step, so that the reward in late ones is the probability of the step to the goal."""
    config = config_of(8000, 200, epsilon, ONE_STEP)
    for task, probability in ((ABOVE, up), (BELOW, down)):
        found = InContextEvaluator(config, [task])({"model": model_of(config).state_dict()})
        assert found.score == found.metrics["development_late_reward"] == pytest.approx(probability, abs=0.015)
