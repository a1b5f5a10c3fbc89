"""Every world with every source that fits it, through all three stages."""

import math
from pathlib import Path

import numpy as np
import pytest
from harness import done, kill_late, refusal

from icrl.data.history_store import open_histories
from icrl.runs.files import read_json

FEW = ("tasks.num_train=8", "tasks.num_held_out=3")
WORLDS = {
    "dark_room": ("env.size=3", "env.max_episode_steps=4", "tasks.num_train=5"),
    "dark_room_permuted": ("env.size=3", "env.max_episode_steps=6", *FEW),
    "dark_key_to_door": ("env.size=3", "env.max_episode_steps=9", *FEW),
    "bandit": ("env.num_arms=3", "env.num_tasks=20", *FEW),
    "gymnasium": ("env.max_episode_steps=9", "tasks.num_train=6", "tasks.num_held_out=3"),
}
VARIANTS = {  # presets with the same rules
    "dark_room_classic": ("env.size=3", "env.max_episode_steps=4", "tasks.num_train=5"),
    "dark_room_hard": ("env.max_episode_steps=16", "tasks.num_train=5", "tasks.num_held_out=3"),
    "dark_key_to_door_hidden": ("env.size=3", "env.max_episode_steps=9", *FEW),
    "bandit_gaussian": ("env.num_arms=3", "env.num_tasks=20", *FEW),
}
ALL = ("data.min_final_success=0",)  # of the learners that have not come far in such a short life
PARTS = ("source.unroll_length=10", "source.mini_batch_length=5", "source.mini_batch_size=2")
SOURCES = {
    "a2c": (*ALL, "source.hidden_size=8", "source.unroll_length=5"),
    "ppo": (*ALL, "source.hidden_size=8", *PARTS),
    "q_learning": (*ALL, "source.unroll_length=1"),
    "dqn": (*ALL, "source.hidden_size=8", "source.unroll_length=2", "source.initial_collect_steps=40"),
    **dict.fromkeys(("noise_distillation", "searcher", "optimal", "random"), ("source.unroll_length=5",)),
}
SMALL = (
    *("name=small", "device=cpu", "num_threads=1", "source.videos_per_task=1", "source.max_videos=1"),
    *("source.num_envs=2", "source.num_env_steps=240", "source.history_steps=200", "source.num_learners=2"),
    *("data.keep_every=1", "data.kept_steps=0", "data.num_development_tasks=1"),
    *("model.context_len=12", "model.embed_dim=8", "model.num_layers=1", "model.num_heads=2", "model.ff_dim=16"),
    *("trainer.num_iterations=4", "trainer.mini_batch_size=4", "evals.num_evals=1", "evals.async_eval=false"),
    *("evals.num_eval_episodes=4", "evals.num_eval_environments=2", "checkpoints.num_checkpoints=1"),
    *("evaluation.num_episodes=4", "evaluation.num_streams=2", "evaluation.num_probe_streams=1"),
    *("evaluation.num_train_streams=1", "evaluation.num_bootstrap=100", "summaries.num_summaries=4"),
)
PIPELINES = [  # every world and every source at least once
    *(("dark_room", "a2c"), ("dark_room", "random"), ("dark_room_permuted", "searcher"), ("dark_room_permuted", "ppo")),
    *(("dark_key_to_door", "q_learning"), ("dark_key_to_door", "noise_distillation"), ("bandit", "dqn")),
    *(("bandit", "searcher"), ("gymnasium", "a2c"), ("gymnasium", "optimal")),
    *((world, "noise_distillation") for world in VARIANTS),
]


def options_of(world: str, source: str, *more: str) -> tuple[str, ...]:
    return (f"env={world}", f"source={source}", *SMALL, *(WORLDS | VARIANTS)[world], *SOURCES[source], *more)


@pytest.mark.parametrize(("world", "source"), PIPELINES)
def test_pipeline(tmp_path: Path, world: str, source: str):
    """The stages run in every world, and the optimum beats chance there."""
    films = source == "a2c"  # videos take longest, and do not depend on the source
    options = options_of(world, source, f"evaluation.videos={films}", f"source.videos_per_task={int(films)}")
    evaluated = world in WORLDS and source == dict(reversed(PIPELINES))[world]
    for stage in ("train_agents", "train_gpt", *(["evaluate"] if evaluated else [])):
        done(stage, tmp_path, *options, preset=())
    columns = open_histories(tmp_path / "histories/small").columns
    assert source != "optimal" or np.array_equal(columns["action"], columns["optimal_action"])
    if not evaluated:
        return
    folder = tmp_path / "logs/small/evaluation"
    curves = read_json(folder / "results.json")["curves"]
    for name, measures in curves.items():
        assert all(math.isfinite(value) for curve in measures.values() for value in curve["mean"]), name
    optimum, random = (np.mean(curves[name]["returns"]["mean"]) for name in ("optimum", "random"))
    assert optimum > random
    assert all((folder / picture).stat().st_size > 0 for picture in ("adaptation.png", "goals.png"))
    assert bool(list((tmp_path / "videos").rglob("*.mp4"))) == films


@pytest.mark.parametrize("world", ["dark_room_permuted", "bandit"])
def test_memory_of_a_searcher_is_in_the_checkpoint(tmp_path: Path, world: str):
    """A run that continues from the middle records the same histories."""
    options = options_of(world, "searcher", "source.videos_per_task=0", "checkpoints.num_checkpoints=3")

    def record() -> dict[str, bytes]:
        done("train_agents", tmp_path, *options, preset=())
        return {path.name: path.read_bytes() for path in (tmp_path / "histories/small").glob("*.npy")}

    expected, logs = record(), tmp_path / "logs/small/source"
    kill_late(logs, 23)
    assert list(logs.glob("last-*.json"))
    assert record() == expected


def test_world_without_searcher_is_refused_before_anything_is_written(tmp_path: Path):
    message = refusal("train_agents", tmp_path, preset=options_of("gymnasium", "searcher"))
    assert "source.name=searcher: there is no searcher with env.name=gymnasium" in message
