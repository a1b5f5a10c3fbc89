"""Noise distillation: the mixture of expert and noise over a run, and its experts, planner or trained agents."""

from contextlib import closing, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from harness import refusal, run
from installed import needs
from probes import CPU, START, alone_and_among_others, changed, learners_of, source_options, step_of
from refusals import check_refusal, refusals

from icrl import extensions
from icrl.app.compose import load_config
from icrl.contracts import ConfigError, Step
from icrl.data.history_store import open_histories
from icrl.envs import make_env
from icrl.extensions.experts import teachers
from icrl.randomness import stream_seeds
from icrl.sources import source_class
from icrl.sources.a2c import A2CConfig

CONFIG = load_config(["source=noise_distillation", "env.size=4", "env.max_episode_steps=8"])
ENV = make_env(CONFIG.env)


def shown(optimal_action: list[int]) -> Step:
    return step_of(torch.zeros(len(optimal_action)).long())._replace(optimal_action=torch.tensor(optimal_action))


def test_the_mixture_by_hand() -> None:
    """The noise falls from 1 to 0 at 0.9 of the run. At 0.45 half the actions are random, so 0.1 for each of 5. An
    update reports the noise alone."""
    learners = learners_of("noise_distillation", 2, ENV.spec)
    learners.set_clock(START._replace(percent=1.0))
    assert learners.noise.tolist() == [0.0, 0.0]
    learners.set_clock(START._replace(percent=0.45))
    expected = torch.tensor([[0.1, 0.1, 0.6, 0.1, 0.1], [0.6, 0.1, 0.1, 0.1, 0.1]])
    assert torch.allclose(learners.action_probabilities(shown([2, 0, 0, 0])), expected[[0, 1, 1, 1]])
    assert learners.update(None).metrics["noise"].tolist() == pytest.approx([0.5, 0.5])
    learners.expert = SimpleNamespace(action_probabilities=lambda step: torch.eye(5)[[4]].expand(len(step.obs), 5))
    assert torch.allclose(learners.action_probabilities(shown([2, 2]))[0], torch.tensor([0.1, 0.1, 0.1, 0.1, 0.6]))


def test_random_actions_need_no_planner_and_optimal_ones_are_its_own() -> None:
    assert (learners_of("random", 1, ENV.spec).action_probabilities(shown([5, 5])) == torch.full((2, 5), 0.2)).all()
    assert learners_of("optimal", 1, ENV.spec).action_probabilities(shown([4, 2])).equal(torch.eye(5)[[4, 2]])


@needs("from_gymnasium")
@pytest.mark.parametrize("name", ["optimal", "noise_distillation"])
def test_a_world_without_optimal_actions_is_refused(name: str) -> None:
    config = changed(CONFIG, env=load_config(["env=gymnasium_pendulum"]).env, source=source_options(name))
    with pytest.raises(ConfigError, match=rf"source\.name={name} needs the optimal .* env\.name=gymnasium"):
        source_class(name).create(config, ENV, ENV.all_tasks()[:1], stream_seeds(0, 1), CPU)


def test_a_learner_alone_equals_itself_among_others() -> None:
    alone_and_among_others("noise_distillation", 30, 2)


# ---- runs with teachers

SMALL = ("env.size=3", "env.max_episode_steps=4", "tasks.num_train=5", "num_threads=1", "device=cpu")
RUN = ("source.num_envs=2", "source.videos_per_task=0", "summaries.num_summaries=0", "checkpoints.num_checkpoints=1")
FITS = ("evaluation.num_episodes=3", "model.context_len=8", "data.num_development_tasks=1")
EXPERT = ("source=noise_distillation", "source.num_env_steps=400", "source.history_steps=400")
LEARNED = ("source=q_learning", "source.num_learners=2", "source.unroll_length=5")
MEMORY = ("source=a2c", "source.body=gru", "source.hidden_size=8", "source.num_learners=2", "source.unroll_length=5")


def train(root: Path, name: str, *options: str) -> Any:
    return run("train_agents", root, *SMALL, *RUN, *FITS, *options, f"name={name}", preset=())


def optimal_at_the_end(root: Path, name: str, *options: str) -> float:
    """Fraction of optimal actions among the last of a run."""
    outcome = train(root, name, *options)
    assert outcome.code == 0, outcome.err
    columns = open_histories(root / "histories" / name).columns
    return float(np.mean(columns["action"][:, -20:] == columns["optimal_action"][:, -20:]))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with finished runs: agents that learned, agents that hardly learned, agents with a memory."""
    root = tmp_path_factory.mktemp("teachers")
    runs = [("learned", 3000, LEARNED), ("short", 40, LEARNED)]
    runs += [("gru", 120, MEMORY)] if "memory" in extensions.NAMES else []
    for name, steps, options in runs:
        optimal_at_the_end(root, name, *options, f"source.num_env_steps={steps}", f"source.history_steps={steps}")
    return root


def test_in_the_end_the_planner_is_played_and_what_imitates_cannot_teach(trained: Path) -> None:
    assert optimal_at_the_end(trained, "best", *EXPERT) == 1.0
    optimal_at_the_end(trained, "taught", *EXPERT, "source.teacher=best")
    refused = train(trained, "x", *EXPERT, "source.teacher=taught").refusal
    assert "source.teacher=taught" in refused and "source.teacher=best" in refused


def test_trained_agents_teach(trained: Path) -> None:
    """An agent that hardly learned is imitated too: it is no planner. Q-learning finds shortest paths, if not always
    the planner's, so learners that imitate it reach the goal as fast."""
    by_learned = optimal_at_the_end(trained, "pupil", *EXPERT, "source.teacher=learned")
    by_short = optimal_at_the_end(trained, "other", *EXPERT, "source.teacher=short")
    assert by_short < by_learned
    if "memory" in extensions.NAMES:
        assert by_learned > optimal_at_the_end(trained, "third", *EXPERT, "source.teacher=gru")
    columns = open_histories(trained / "histories" / "pupil").columns
    assert columns["terminated"][:, -40:].any(axis=1).all()


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ("source.teacher=nobody", "source.teacher=nobody & no finished run"),
        ("source.teacher=learned env.max_episode_steps=3", "env.max_episode_steps=4 & 3"),
        ("source.teacher=learned source.num_envs=5", "source.num_envs=5 & 2 learners per task of source.teacher"),
    ],
)
def test_refused_teachers(trained: Path, options: str, parts: str) -> None:
    refused = train(trained, "x", *EXPERT, *options.split()).refusal
    assert all(part in refused for part in parts.split(" & ")), refused


@needs("memory")
def test_agents_that_act_on_their_past_cannot_teach(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(A2CConfig, "in_context", True)
    refused = train(trained, "x", *EXPERT, "source.teacher=gru").refusal
    assert "source.teacher=gru" in refused and "its own past" in refused


# ---- noise in a Box of actions


@needs("vectors")
def test_continuous_noise_by_hand() -> None:
    """At 0.45 of the run the noise is a half: the mean of a uniform action and the planner's."""
    env = make_env(load_config(["env=point_robot"]).env)
    _, step = env.reset(env.all_tasks()[:6], stream_seeds(0, 6))
    noise = torch.rand(6, generator=torch.Generator().manual_seed(1))
    found = {}
    for name, percent in (("random", 0.0), ("noise_distillation", 0.45), ("optimal", 0.0)):
        learners = learners_of(name, 2, env.spec)
        learners.set_clock(START._replace(percent=percent))
        found[name], _ = learners.act((), step, noise)
        again, _ = learners.act((), step._replace(obs=step.obs + 1), noise)
        assert again.equal(found[name])
    assert found["optimal"].equal(step.optimal_action)
    assert (found["random"] != found["random"].flip(1)).all() and found["random"].abs().max() <= 1
    half = (found["random"] + found["optimal"]) / 2
    assert found["noise_distillation"].allclose(half, atol=1e-6)


# ---- options of teachers that do not fit, and the streams that they are evaluated on

CART = "env=gymnasium_cart_pole"


@pytest.mark.parametrize(("_", "overrides", "named"), refusals(Path(__file__).with_name("refusals.txt")))
def test_conflicts_are_refused_in_one_line(_: str, overrides: list[str], named: list[str]) -> None:
    check_refusal(load_config, overrides, named)


@needs("from_gymnasium")
def test_wrong_options_of_a_teacher_are_refused_before_any_work(tmp_path: Path) -> None:
    for options, message in (
        (("env=dark_room", "source=taught"), "env.name=dark_room has no env.task_visible"),
        ((CART, "source=taught", "source.expert=['source=ppo','source.clipp=1']"), "source.clipp"),
        ((CART, "source=taught", "source.expert=['source=taught']"), "a teacher must not have a teacher of its own"),
        ((CART, "source=noise_distillation", "source.wrong_task=0.5"), "source.wrong_task=0.5 needs a teacher"),
    ):
        assert message in refusal("train_agents", tmp_path, *options, preset=())
        assert not list(tmp_path.glob("histories/*"))


@pytest.mark.parametrize(("num_teachers", "streams", "fits"), [(1, 3, True), (4, 2, True), (3, 6, True), (3, 2, False)])
def test_streams_of_evaluations_divide_among_the_learners_of_a_teacher(
    monkeypatch: pytest.MonkeyPatch, num_teachers: int, streams: int, fits: bool
) -> None:
    """Two learners per task imitate `num_teachers` teachers on each of two tasks."""
    few = ("source.num_learners=2", "source.num_envs=6", "source.num_env_steps=12000", "source.history_steps=12000")
    options = ("source=noise_distillation", "source.teacher=them", *few, "source.evaluate=true")
    config = load_config([*options, f"evals.num_eval_environments={streams}"])
    with closing(make_env(config.env)) as env:
        seeds = torch.arange(2 * num_teachers)
        agents = source_class("a2c")(load_config().source, env.spec, seeds, torch.device("cpu"))
        monkeypatch.setattr(teachers, "agents_of_teacher", lambda *_: agents)
        fields = "source.num_learners=2 x evals.num_eval_environments=2 .* 3 learners .*source.teacher=them"
        with nullcontext() if fits else pytest.raises(ConfigError, match=fields):
            assert teachers.trained_agents(config, "them", env.all_tasks()[:2]) is agents


def test_without_its_teacher_a_pupil_cannot_live_on_another_task() -> None:
    assert load_config(["source=noise_distillation"]).source.alone() == {}
    assert load_config(["source=noise_distillation", "source.teacher=them"]).source.alone() is None
