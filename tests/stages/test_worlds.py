"""Every world with every source that fits it, through all three stages; with the game of points, also what is recorded
and shown, and what a killed run ends with."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from harness import STAGES, done, kill_late, refusal, results_of

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
SMALL = (
    *("name=small", "device=cpu", "num_threads=1", "source.videos_per_task=1", "source.max_videos=1"),
    *("source.num_envs=2", "source.num_env_steps=240", "source.history_steps=200", "source.num_learners=2"),
    *("data.keep_every=1", "data.kept_steps=0", "data.num_development_tasks=1"),
    *("model.context_len=12", "model.embed_dim=8", "model.num_layers=1", "model.num_heads=2", "model.ff_dim=16"),
    *("trainer.num_iterations=4", "trainer.mini_batch_size=4", "evals.num_evals=1", "evals.async_eval=false"),
    *("evals.num_eval_episodes=4", "evals.num_eval_environments=2", "checkpoints.num_checkpoints=1"),
    *("evaluation.num_episodes=4", "evaluation.num_streams=2", "evaluation.num_probe_streams=1"),
    *("evaluation.num_train_streams=1", "evaluation.num_bootstrap=100", "summaries.num_summaries=4"),
    *("finetune.trial_steps=12", "finetune.num_iterations=1", "finetune.num_streams=2", "policy.model=gpt"),
)
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


# ---- the game of points

POINTS = (
    *(*SMALL, "experiment=point_game", "env.opponents=[tables_20,orders]", "env.dimensions=[3]"),
    *("env.max_episode_steps=6", "env.clouds=[{max_num_points: 5, max_value: 6}]", "source.videos_per_task=0"),
    *("tasks.num_train=6", "tasks.num_held_out=3", "source.num_env_steps=600", "source.history_steps=500"),
    *("source.hidden_size=8", "source.unroll_length=5", "data.min_final_success=0"),
    *("checkpoints.num_checkpoints=0", "checkpoints.checkpoint_interval=2", "checkpoints.keep_last=9"),
)
AGENT = ("env.role=agent", "env.opponents=[zeillinger,random_pair,weak_spivakovsky,all_coordinates,'random_pair@0.5']")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a finished run of all stages; only to be read."""
    root = tmp_path_factory.mktemp("points")
    for stage in STAGES:
        done(stage, root, preset=POINTS)
    return root


@pytest.fixture
def root(played: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(played, tmp_path / "root"))


def test_a_legal_game_is_recorded_and_the_model_stands_beside_chance_and_the_best_known_players(played):
    results = read_json(played / "logs/small/evaluation/results.json")
    curves = results["curves"]
    assert {"model, held-out tasks", "model, training tasks", "random", "Zeillinger", "Weak Spivakovsky"} <= set(curves)
    assert {"A2C, training tasks, start of life", "A2C, training tasks, end of life"} <= set(curves)
    for name, measures in curves.items():
        for measure, curve in measures.items():
            whole = measure not in ("first_success", "after_first_success")  # these end with the streams to tell
            assert len(curve["mean"]) == 4 or not whole, (name, measure)
            assert np.isfinite(curve["mean"]).all(), (name, measure)
    assert "optimum" not in curves and len(results["held_out_tasks"]) == 3
    histories = open_histories(played / "histories/small")
    spec, columns = histories.spec, histories.columns
    assert spec.points == (5, 3) and columns["obs"].shape == (24, 250, 5 * 3 + 3 + 4) == columns["next_obs"].shape
    assert columns["obs"].dtype == np.uint16 and columns["action"].dtype == np.uint8
    legal = np.take_along_axis(columns["obs"][..., -4:], columns["action"][..., None].astype(np.int64), -1)
    assert (legal == 1).all() and (columns["optimal_action"] == 4).all()
    going = ~(columns["terminated"] | columns["truncated"]).astype(bool)[:, :-1]
    assert (columns["next_obs"][:, :-1][going] == columns["obs"][:, 1:][going]).all()
    left = (columns["next_obs"][..., :15].reshape(24, 250, 5, 3)[..., 0] > 0).sum(-1)
    assert ((left == 1) == columns["terminated"]).all() and (columns["reward"] == columns["terminated"]).all()


def test_a_killed_run_ends_with_the_bits_of_one_that_was_not(played, root):
    """Both stages go on from a checkpoint amid the run."""
    for stage, folder in (("train_agents", root / "logs/small/source"), ("train_gpt", root / "logs/small/gpt")):
        first, *later = sorted(int(path.stem[5:]) for path in folder.glob("last-*.pt"))
        assert later
        kill_late(folder, first)
        done(stage, root, preset=POINTS)
    assert results_of(root) == results_of(played)


def test_opponents_that_were_learned_from_are_not_new(root):
    """By whatever name they go: all orders are tables."""
    tasks = open_histories(root / "histories/small").manifest["tasks"]
    done("evaluate", root, "env.opponents=[tables_200]", "tasks.num_held_out=0", preset=POINTS)
    (folder,) = [path for path in (root / "logs/small").iterdir() if path.name.startswith("evaluation-opponents=")]
    assert len(read_json(folder / "results.json")["held_out_tasks"]) == 24 - len(tasks["train"])


def test_offline_learning_of_the_game(root):
    done("train_ilql", root, preset=POINTS)
    done("extract_policy", root, preset=POINTS)
    assert "give finetune.bonus=0" in refusal("finetune", root, preset=POINTS)
    done("finetune", root, "finetune.bonus=0", preset=POINTS)


def test_an_agent_through_all_stages(tmp_path):
    agent = (*AGENT, "tasks.num_train=3", "tasks.num_held_out=2", "evaluation.num_streams=1")
    for stage in STAGES:
        done(stage, tmp_path, *agent, "evaluation.ablations=false", preset=POINTS)
    curves = read_json(tmp_path / "logs/small/evaluation/results.json")["curves"]
    assert {"model, held-out tasks", "random", "First", "Last"} <= set(curves)
    columns = open_histories(tmp_path / "histories/small").columns
    legal = np.take_along_axis(columns["obs"][..., -3:], columns["action"][..., None].astype(np.int64), -1)
    assert (legal == 1).all() and (columns["reward"] == 1 - columns["terminated"]).all()
