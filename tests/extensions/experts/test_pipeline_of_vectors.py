"""Worlds of vectors: stage one without a learner, its store, resuming and refusals, and a model of its histories."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from continued import check_continues
from harness import SMALL, done, refusal
from installed import EVALUATED_AGENTS, FILMED, needs

from icrl.app.compose import load_config
from icrl.contracts import Rollout, Step
from icrl.data.history_store import open_histories
from icrl.envs import make_env
from icrl.envs.core import State
from icrl.extensions.experts.teachers import trained_agents
from icrl.runs.checkpoint import load_newest
from icrl.runs.files import read_json

pytestmark = needs("vectors")

ROBOT = (
    *SMALL,
    *("env=point_robot", "source=noise_distillation", "tasks.num_train=6", "tasks.num_held_out=3"),
    *("source.unroll_length=5", "source.num_env_steps=1200", "source.history_steps=1200"),
    *("checkpoints.num_checkpoints=4", f"source.evaluate={EVALUATED_AGENTS}"),
)
MODEL = (
    *("objective=dpt", "objective.weighting=none", "model.tokens=cross", "model.head=binned", "model.num_bins=8"),
    *("trainer.num_iterations=8", "evaluation.ablations=false", "evaluation.temperatures=[]"),
    "evaluation.videos=false",
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Root of histories of the point robot; only to be read."""
    root = tmp_path_factory.mktemp("robot")
    done("train_agents", root, preset=ROBOT)
    return root


def test_recorded_steps_follow_the_rules_and_improve(recorded: Path) -> None:
    """Every row, step by step, from the columns alone; actions go from uniform to the planner's. All are filmed."""
    store = open_histories(recorded / "histories/small")
    columns = {name: torch.from_numpy(np.array(store.columns[name])) for name in Rollout._fields}
    assert (columns["obs"].dtype, columns["action"].dtype) == (torch.float32, torch.float32)
    env = make_env(load_config(["env=point_robot"]).env)
    tasks = torch.tensor(store.manifest["tasks"]["all"])
    assert tasks.equal(env.all_tasks())
    assert not {*store.manifest["tasks"]["held_out"]} & {*store.manifest["tasks"]["train"]}
    goals = tasks[np.array(store.row_tasks)][:, None].expand(-1, columns["obs"].shape[1], -1)
    zero = columns["timestep"].long()
    after, reward, _ = env.move(State(goals, zero, zero, columns["obs"], zero), columns["action"])
    assert after.equal(columns["next_obs"]) and reward.equal(torch.tensor(np.array(store.rewards())))
    plan = env.optimal_action(State(goals, zero, zero, columns["obs"], zero))
    assert plan.equal(columns["optimal_action"]) and columns["action"].abs().max() <= 1
    off = (columns["action"] - plan).abs().mean((0, 2))
    assert off[:20].mean() > 0.5 and off[-20:].max() == 0
    returns = reward.view(len(reward), -1, 20).sum(-1)
    assert (returns[:, -1] > returns[:, 0] + 5).all()
    results = read_json(recorded / "logs/small/source/finished.json")
    assert np.mean(results["success"]) == 1.0 and not results["unsolved"]
    films = [*(recorded / "videos/small/source").glob("goal_x_*.mp4")]
    assert len(films) == 6 * FILMED  # one for each task


def test_trials_from_random_weights_have_the_moments_of_all_recorded_steps(recorded: Path, tmp_path: Path) -> None:
    """Of the training tasks that are not set aside, although not one window can be cut from their rows."""
    shutil.copytree(recorded / "histories", tmp_path / "histories")
    small = ("num_tasks=2", "num_streams=2", "trial_steps=20", "num_iterations=1", "num_mini_batches=1", "bonus=0")
    options = ("finetune.start=none", *(f"finetune.{option}" for option in small))
    options += ("data.keep_every=[7]", "model.context_len=400")
    done("finetune", tmp_path, *MODEL, *options, preset=ROBOT)
    state, about = load_newest(tmp_path / "logs/small/finetuned", "last", torch.device("cpu"))
    store, tasks = open_histories(tmp_path / "histories/small"), about["description"]["tasks"]
    learned = np.isin(store.row_tasks, [task for task in tasks["train"] if task not in tasks["development"]])
    obs, reward = store.columns["obs"][learned].reshape(-1, 2), store.rewards(learned).astype(np.float64)
    expected = {
        "obs.encoder": (obs.mean(0, np.float64), obs.std(0, np.float64)),
        "prev_reward.encoder": (0, reward.std()),
    }
    for name, (mean, std) in expected.items():
        np.testing.assert_allclose(state["model"][f"{name}.standardize.mean"].numpy(), mean, rtol=1e-6)
        np.testing.assert_allclose(state["model"][f"{name}.standardize.std"].numpy(), std, rtol=1e-6)


def test_a_killed_model_ends_with_the_same_bits_and_its_own_moments(recorded: Path, tmp_path: Path) -> None:
    """The checkpoint has the mean and deviation of the observations of the rows that it learned from; frozen, it plays
    tasks that it has not seen, beside random play and the optimum."""
    shutil.copytree(recorded / "histories", tmp_path / "histories")
    check_continues("train_gpt", tmp_path, "logs/small/gpt", *MODEL, preset=ROBOT)
    state, about = load_newest(tmp_path / "logs/small/gpt", "last", torch.device("cpu"))
    store, tasks = open_histories(tmp_path / "histories/small"), about["description"]["tasks"]
    learned = np.isin(store.row_tasks, [task for task in tasks["train"] if task not in tasks["development"]])
    obs = store.columns["obs"][learned].reshape(-1, 2).astype(np.float64)
    moments = (state["model"][f"obs.encoder.standardize.{name}"].numpy() for name in ("mean", "std"))
    for got, expected in zip(moments, (obs.mean(0), obs.std(0)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)
    done("evaluate", tmp_path, *MODEL, preset=ROBOT)
    curves = read_json(tmp_path / "logs/small/evaluation/results.json")["curves"]
    assert "model, held-out tasks" in curves
    for name, measures in curves.items():
        assert np.isfinite(measures["returns"]["mean"]).all(), name
    optimum, random = (np.mean(curves[name]["returns"]["mean"]) for name in ("optimum", "random"))
    assert -4.6 < optimum < -3 and random < -12


def test_trained_agents_teach(tmp_path: Path) -> None:
    """Noise falls to 0: then every action is the mean of the teacher's Gaussian."""
    short = ("env=pendulum", "env.max_episode_steps=20", "source.num_env_steps=200", "source.history_steps=200")
    short += ("source.videos_per_task=0", "source.evaluate=false")
    done("train_agents", tmp_path, *short, "source=ppo", "source.hidden_size=8", "name=taught", preset=ROBOT)
    done("train_agents", tmp_path, *short, "source.teacher=taught", preset=ROBOT)
    config = load_config([*ROBOT, *short, "source.teacher=taught", f"root={tmp_path}"])
    store, env = open_histories(tmp_path / "histories/small"), make_env(config.env)
    train = env.all_tasks()[store.manifest["tasks"]["train"]]
    teacher = trained_agents(config, "taught", train)
    obs, action = (torch.tensor(np.array(store.columns[name][:, -1])) for name in ("obs", "action"))
    zero = torch.zeros(len(obs))
    step = Step(obs, zero, zero > 0, zero > 0, obs, zero.long(), env.spec.unknown_action(obs))
    expected = teacher.act_in_evaluation(step, zero, 0.0)
    assert torch.allclose(action, expected, atol=1e-6)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    for options, named in (
        (("env=pendulum", "source=optimal", "env.max_episode_steps=20"), "source.name=optimal needs the optimal"),
        (("tasks.split=ring",), "tasks of env.name=point_robot have no place on a map"),
    ):
        assert named in refusal("train_agents", tmp_path, *options, preset=ROBOT)
