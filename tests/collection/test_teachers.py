"""Whom a noisy expert imitates: the planner with a floor of noise, or agents that were trained before."""

from pathlib import Path

import numpy as np
import pytest
import torch
from harness import run

from icrl.sources.teachers import least_noise
from icrl.config.compose import load_config
from icrl.contracts import ConfigError
from icrl.data.history_store import open_histories
from icrl.envs import make_env
from icrl.envs.exact import noisy_exact

SMALL = ("env.size=3", "env.max_episode_steps=4", "tasks.num_train=5", "num_threads=1", "device=cpu")
LIFE = ("source.num_envs=2", "source.videos_per_task=0", "summaries.num_summaries=2", "checkpoints.num_checkpoints=2")
EXPERT = (
    "source=noise_distillation",
    "source.num_env_steps=400",
    "source.history_steps=400",
    "source.unroll_length=10",
)
FITS = ("evaluation.num_episodes=3", "model.context_len=8", "data.num_development_tasks=1")


@pytest.mark.parametrize("max_performance", [0.3, 0.7, 0.95])
def test_the_floor_gives_the_performance_on_every_task(max_performance):
    """Task by task, so that one does not depend on which others there are."""
    config = load_config(["env.size=5"]).env
    env = make_env(config)
    tasks = env.all_tasks()
    noise = least_noise(config, tasks, max_performance)
    chance, found = (noisy_exact(env, tasks, share).episode_return for share in (1.0, noise))
    assert ((noise > 0) & (noise < 1)).all() and noise.unique().numel() > 3
    assert torch.allclose(found, chance + max_performance * (1 - chance), atol=1e-3)
    assert torch.equal(least_noise(config, tasks[5:6], max_performance), noise[5:6])


def life_of(root: Path, *options: str) -> np.ndarray:
    """What part of the last actions of a run were optimal, `[rows]`."""
    outcome = run("train_agents", root, *SMALL, *LIFE, *FITS, *options, preset=())
    assert outcome.code == 0, outcome.err
    name = next(option.removeprefix("name=") for option in options if option.startswith("name="))
    columns = open_histories(root / "histories" / name).columns
    last = slice(-20, None)
    return (columns["action"][:, last] == columns["optimal_action"][:, last]).mean(axis=1)


def test_a_worse_expert_stays_worse(tmp_path):
    assert life_of(tmp_path, *EXPERT, "name=best").mean() == 1.0
    assert 0.3 < life_of(tmp_path, *EXPERT, "name=worse", "source.max_performance=0.5").mean() < 0.9


def test_a_floor_is_kept_by_those_it_teaches(tmp_path):
    """An expert that was held back is a teacher that is; and it is no teacher who only imitates."""
    worse = life_of(tmp_path, *EXPERT, "name=worse", "source.max_performance=0.5").mean()
    pupil = life_of(tmp_path, *EXPERT, "name=pupil", "source.teacher=worse").mean()
    assert pupil == pytest.approx(worse, abs=0.12) and pupil < 0.9
    outcome = run("train_agents", tmp_path, *SMALL, *LIFE, *FITS, *EXPERT, "name=x", "source.teacher=pupil", preset=())
    assert "source.teacher=pupil" in outcome.refusal and "source.teacher=worse" in outcome.refusal


def test_a_searcher_is_no_teacher(tmp_path):
    sizes = ("source.num_env_steps=120", "source.history_steps=120")
    life_of(tmp_path, "source=searcher", *sizes, "name=searcher")
    outcome = run(
        "train_agents", tmp_path, *SMALL, *LIFE, *FITS, *EXPERT, "name=x", "source.teacher=searcher", preset=()
    )
    assert "source.teacher=searcher" in outcome.refusal and "its own past alone" in outcome.refusal


def test_trained_agents_teach(tmp_path):
    """An agent that was trained on hardly anything is imitated too: it is no planner."""
    learned = ("source=q_learning", "source.num_learners=2", "source.unroll_length=1", "name=learned")
    life_of(tmp_path, *learned, "source.num_env_steps=4000", "source.history_steps=4000")
    short = [option.replace("learned", "short") for option in learned]
    life_of(tmp_path, *short, "source.num_env_steps=40", "source.history_steps=40")
    by_learned = life_of(tmp_path, *EXPERT, "source.teacher=learned", "name=pupil")
    by_short = life_of(tmp_path, *EXPERT, "source.teacher=short", "name=other")
    assert by_short.mean() < by_learned.mean()
    # Q-learning finds shortest paths, if not always the planner's; so its pupils win as fast.
    steps = open_histories(tmp_path / "histories" / "pupil").columns
    assert steps["terminated"][:, -40:].any(axis=1).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["source.teacher=nobody"], ["source.teacher=nobody", "no finished run"]),
        (["source.teacher=learned", "env.max_episode_steps=3"], ["env.max_episode_steps=4", "says 3"]),
        (
            ["source.teacher=learned", "source.num_envs=3"],
            ["source.num_envs=3", "2 learners", "source.teacher=learned"],
        ),
    ],
)
def test_a_teacher_that_does_not_fit(tmp_path, options, said):
    learned = ("source=q_learning", "source.num_learners=2", "source.unroll_length=1", "name=learned")
    life_of(tmp_path, *learned, "source.num_env_steps=40", "source.history_steps=40")
    sizes = ("source.num_env_steps=600", "source.history_steps=600")
    outcome = run("train_agents", tmp_path, *SMALL, *LIFE, *FITS, *EXPERT, "name=x", *sizes, *options, preset=())
    assert all(part in outcome.refusal for part in said), outcome.refusal


def test_a_floor_needs_the_planner():
    with pytest.raises(ConfigError, match=r"source\.max_performance=0\.5.*source\.teacher=learned"):
        load_config(["source=noise_distillation", "source.max_performance=0.5", "source.teacher=learned"])
