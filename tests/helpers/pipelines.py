"""Small runs of every world with every source that fits it, through all three stages."""

import math
from pathlib import Path

import numpy as np
from harness import SMALL, done

from icrl import extensions
from icrl.data.history_store import open_histories
from icrl.runs.files import read_json

FEW = ("tasks.num_train=8", "tasks.num_held_out=3")
WORLDS = {
    "dark_room": ("env.size=3", "env.max_episode_steps=4", "tasks.num_train=5"),
    "dark_room_permuted": ("env.size=3", "env.max_episode_steps=6", *FEW),
}
VARIANTS: dict[str, tuple[str, ...]] = {}  # presets with the same rules
if "from_gymnasium" in extensions.NAMES:
    WORLDS["gymnasium"] = ("env.max_episode_steps=9", "tasks.num_train=6", "tasks.num_held_out=3")
    VARIANTS["frozen_lake"] = ("env.tasks.random.desc.size=3", "env.tasks.count=9", "env.max_episode_steps=9")
if "worlds" in extensions.NAMES:
    WORLDS |= {
        "dark_key_to_door": ("env.size=3", "env.max_episode_steps=9", *FEW),
        "bandit": ("env.num_arms=3", "env.num_tasks=20", *FEW),
        "garnet": ("env.num_states=5", "env.max_episode_steps=6", "env.num_tasks=20", *FEW),
    }
    VARIANTS["bandit_linear"] = WORLDS["bandit"]
ALL = ("data.min_final_success=0",)  # of the learners that have not come far in such a short life
PARTS = ("source.unroll_length=10", "source.mini_batch_length=5", "source.mini_batch_size=2")
SOURCES = {
    "a2c": (*ALL, "source.hidden_size=8", "source.unroll_length=5"),
    "a3c": (*ALL, "source.hidden_size=8", "source.unroll_length=2.5"),
    "ppo": (*ALL, "source.hidden_size=8", *PARTS),
    "q_learning": (*ALL, "source.unroll_length=1"),
    "dqn": (*ALL, "source.hidden_size=8", "source.unroll_length=2", "source.initial_collect_steps=40"),
}


def options_of(world: str, source: str, *more: str) -> tuple[str, ...]:
    own = SOURCES.get(source, ("source.unroll_length=5",))
    return (f"env={world}", f"source={source}", *SMALL, *(WORLDS | VARIANTS)[world], *own, *more)


def check_pipeline(tmp_path: Path, world: str, source: str, evaluated: bool) -> None:
    """The stages run in every world, and the optimum beats chance there."""
    options = options_of(world, source, "evaluation.videos=false", "source.videos_per_task=0")
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
