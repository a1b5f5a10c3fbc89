"""Every world with every source that fits it, through all three stages."""

import math

import numpy as np
import pytest
from harness import SMALL, done, kill_late, refusal

from icrl import extensions
from icrl.data.history_store import open_histories
from icrl.runs.files import read_json

FEW = ("tasks.num_train=8", "tasks.num_held_out=3")
WORLDS = {
    "dark_room": ("env.size=3", "env.max_episode_steps=4", "tasks.num_train=5"),
    "dark_room_permuted": ("env.size=3", "env.max_episode_steps=6", *FEW),
    "gymnasium": ("env.max_episode_steps=9", "tasks.num_train=6", "tasks.num_held_out=3"),
}
VARIANTS = {  # presets with the same rules
    "dark_room_classic": ("env.size=3", "env.max_episode_steps=4", "tasks.num_train=5"),
    "dark_room_hard": ("env.max_episode_steps=16", "tasks.num_train=5", "tasks.num_held_out=3"),
    "frozen_lake": ("env.tasks.random.desc.size=3", "env.tasks.count=9", "env.max_episode_steps=9"),
}
VECTORS: dict[str, tuple[str, ...]] = {}
if "worlds" in extensions.NAMES:
    WORLDS |= {
        "dark_key_to_door": ("env.size=3", "env.max_episode_steps=9", *FEW),
        "bandit": ("env.num_arms=3", "env.num_tasks=20", *FEW),
        "garnet": ("env.num_states=5", "env.max_episode_steps=6", "env.num_tasks=20", *FEW),
    }
    VARIANTS |= {
        "dark_key_to_door_hidden": ("env.size=3", "env.max_episode_steps=9", *FEW),
        "bandit_gaussian": ("env.num_arms=3", "env.num_tasks=20", *FEW),
        "bandit_linear": ("env.num_arms=3", "env.num_tasks=20", *FEW),
        "bandit_contextual": ("env.num_arms=3", "env.num_tasks=20", *FEW),
        "anymdp": ("env.num_states=5", "env.max_episode_steps=6", "env.num_tasks=20", *FEW),
    }
    VECTORS |= dict.fromkeys(("cart_pole", "pendulum"), ("env.max_episode_steps=9", *FEW))
ALL = ("data.min_final_success=0",)  # of the learners that have not come far in such a short life
PARTS = ("source.unroll_length=10", "source.mini_batch_length=5", "source.mini_batch_size=2")
SOURCES = {
    "a2c": (*ALL, "source.hidden_size=8", "source.unroll_length=5"),
    "a3c": (*ALL, "source.hidden_size=8", "source.unroll_length=2.5"),
    "ppo": (*ALL, "source.hidden_size=8", *PARTS),
    "q_learning": (*ALL, "source.unroll_length=1"),
    "dqn": (*ALL, "source.hidden_size=8", "source.unroll_length=2", "source.initial_collect_steps=40"),
    "sac": (*ALL, "source.hidden_size=8", "source.unroll_length=5", "source.initial_collect_steps=40"),
    **dict.fromkeys(("noise_distillation", "searcher", "optimal", "random"), ("source.unroll_length=5",)),
}
PIPELINES = [  # every world and every source at least once
    *(("dark_room", "a2c"), ("dark_room", "random"), ("dark_room_permuted", "searcher"), ("dark_room_permuted", "ppo")),
    *(("gymnasium", "a2c"), ("gymnasium", "optimal")),
    *((world, "noise_distillation") for world in VARIANTS),
]
MEMORIES = [("dark_room_permuted", "searcher", 24)]
if "worlds" in extensions.NAMES:
    PIPELINES += [
        *(("dark_key_to_door", "q_learning"), ("dark_key_to_door", "noise_distillation"), ("bandit", "dqn")),
        *(("bandit", "searcher"), ("bandit", "a3c"), ("garnet", "searcher")),
    ]
    MEMORIES += [
        ("bandit", "searcher", 24),
        ("garnet", "searcher", 24),
        ("pendulum", "ppo", 12),
        ("pendulum", "sac", 24),
    ]
if "value_sources" not in extensions.NAMES:
    PIPELINES = [(world, source) for world, source in PIPELINES if source not in ("q_learning", "dqn")]
    MEMORIES = [one for one in MEMORIES if one[1] != "sac"]


def options_of(world: str, source: str, *more: str) -> tuple[str, ...]:
    return (f"env={world}", f"source={source}", *SMALL, *(WORLDS | VARIANTS | VECTORS)[world], *SOURCES[source], *more)


@pytest.mark.parametrize(("world", "source"), PIPELINES)
def test_pipeline(tmp_path, world, source):
    """The stages run in every world, and the optimum beats chance there."""
    films = source == "a2c"  # videos take longest, and do not depend on the source
    options = options_of(world, source, f"evaluation.videos={films}", f"source.videos_per_task={int(films)}")
    evaluated = world in WORLDS and source == dict(reversed(PIPELINES))[world]
    for stage in ("train_agents", "train_gpt", *(["evaluate", "finetune"] if evaluated else [])):
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


@pytest.mark.parametrize(("world", "source", "iterations"), MEMORIES)
def test_memories_and_moments_are_in_the_checkpoint(tmp_path, world, source, iterations):
    """A run that continues from the middle records the same histories."""
    options = options_of(world, source, "source.videos_per_task=0", "checkpoints.num_checkpoints=3")

    def record() -> dict[str, bytes]:
        done("train_agents", tmp_path, *options, preset=())
        return {path.name: path.read_bytes() for path in (tmp_path / "histories/small").glob("*.npy")}

    expected, logs = record(), tmp_path / "logs/small/source"
    assert list(logs.glob(f"last-*{iterations}.json"))
    kill_late(logs, iterations - 1)
    assert list(logs.glob("last-*.json"))
    assert record() == expected


def test_world_of_vectors_without_tables_is_refused_before_anything_is_written(tmp_path):
    message = refusal(
        "train_agents",
        tmp_path,
        preset=("env=gymnasium_pendulum", "source=q_learning", *SMALL, "env.max_episode_steps=9"),
    )
    assert "source.name=q_learning needs Discrete observations and actions, not Box(" in message
    assert not list(tmp_path.iterdir())


def test_world_without_searcher_is_refused_before_anything_is_written(tmp_path):
    message = refusal("train_agents", tmp_path, preset=options_of("gymnasium", "searcher"))
    assert "strategy=nearest: there is no such searcher with env.name=gymnasium" in message
