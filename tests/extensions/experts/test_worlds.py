"""Worlds with sources that learn nothing, through all three stages."""

from pathlib import Path

import numpy as np
import pytest
from harness import SMALL, STAGES, done
from installed import needs
from masked_env import LEFT, RIGHT, corridor, options_of
from own_vectors import check_told_by_its_returns
from pipelines import check_pipeline
from probes import learners_of

from icrl import extensions
from icrl.data.history_store import open_histories
from icrl.envs.rollout import rollout, start_streams
from icrl.randomness import Noise, stream_seeds
from icrl.runs.files import read_json
from icrl.sources.collect import SampledOrGreedy

PIPELINES = [("dark_room", "random")]
if "from_gymnasium" in extensions.NAMES:
    PIPELINES.append(("gymnasium", "optimal"))
if "worlds" in extensions.NAMES:
    PIPELINES.append(("bandit_linear", "noise_distillation"))


@pytest.mark.parametrize(("world", "source"), PIPELINES)
def test_pipeline(tmp_path: Path, world: str, source: str) -> None:
    check_pipeline(tmp_path, world, source, False)


# ---- a world of vectors of one's own through all stages, with an expert of all its tasks

LEARNER = "source.expert=['source=expert','source.num_env_steps=128','source.history_steps=128','source.hidden_size=8']"


@needs("from_gymnasium")
@needs("vectors")
@pytest.mark.parametrize(
    "stages", [("train_agents", "train_gpt", "evaluate"), pytest.param(("pipeline",), marks=pytest.mark.long)]
)
def test_returns_are_scaled_by_those_of_the_expert(stages: tuple[str, ...], tmp_path: Path) -> None:
    check_told_by_its_returns(stages, ("source=taught", LEARNER, "objective=dpt"), True, tmp_path)


# ---- sources that learn nothing, in environments with an expert of their own or with legal actions

GUIDED = (*options_of([{"goal": goal} for goal in range(5)], "Guided"), "env.expert=info")
OPTIONS = (
    *("source=noise_distillation", "objective=dpt", "tasks.num_train=3", "source.num_learners=1"),
    *("data.min_final_success=0", "trainer.evaluate=false", "evaluation.ablations=false"),
    *("source.videos_per_task=0", "evaluation.videos=false"),
)


@needs("from_gymnasium")
@needs("vectors")
def test_noise_distillation_and_labels_follow_it(tmp_path: Path) -> None:
    for stage in STAGES:
        done(stage, tmp_path, *GUIDED, *OPTIONS, preset=SMALL)
    store = open_histories(tmp_path / "histories/small")
    cell, best = np.array(store.columns["obs"])[..., 0], np.array(store.columns["optimal_action"])
    goals = np.repeat(store.manifest["tasks"]["train"], 2)[:, None]  # two streams of each task
    assert np.array_equal(best, np.where(goals > cell, RIGHT, LEFT))
    curves = read_json(tmp_path / "logs/small/evaluation/results.json")["curves"]
    assert curves["expert, sees the task"]["success"]["mean"] == [1.0] * 4 and "optimum" not in curves


@needs("from_gymnasium")
@pytest.mark.parametrize(
    ("name", "options", "vector"),
    [("random", {}, False), pytest.param("noise_distillation", {"noise": 0.5}, True, marks=needs("vectors"))],
)
def test_no_illegal_action_is_taken(name: str, options: dict, vector: bool) -> None:
    """The world fails after one."""
    env = corridor(vector)
    learner = learners_of(name, 5, env.spec, **options)
    if name == "noise_distillation":
        learner.expert = learners_of("ppo", 5, env.spec)
    tasks = env.all_tasks().repeat_interleave(2, 0)
    for policy in (learner, SampledOrGreedy(learner, 0.0), SampledOrGreedy(learner, 0.5)):
        streams = start_streams(policy, env, tasks, stream_seeds(0, 10))
        played, _ = rollout(policy, env, streams, 60, Noise(stream_seeds(1, 10)))
        assert env.spec.legal(played.obs).gather(-1, played.action[..., None]).all()
