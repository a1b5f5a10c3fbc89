"""A model in another world: what it can read, which tasks are new to it, and that nothing is overwritten."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import run

from src.config import load_config
from src.contracts import ConfigError, EnvSpec
from src.evaluation.transfer import changes_of, new_tasks, readable_spec, suffix_of
from src.runtime import recorded
from src.schema import Config

CONFIG = load_config(["env.size=5"])
SPEC = EnvSpec(25, 5, (0.0, 1.0), 5, 20, "goal")
TRAINED = json.loads(json.dumps(SPEC._asdict()))  # as checkpoints keep it: lists for tuples


def changed(config: Config = CONFIG, **options: Any) -> Config:
    return dataclasses.replace(config, env=dataclasses.replace(config.env, **options))


def test_changes_are_named_with_their_new_values() -> None:
    trained = recorded(CONFIG)
    assert changes_of(CONFIG, trained) == {}
    assert changes_of(changed(size=7, terminate_on_goal=False), trained) == {"size": 7, "terminate_on_goal": False}
    assert changes_of(changed(variant="other"), trained) == {}  # a label
    assert changes_of(changed(variant="other", size=7), trained) == {"variant": "other", "size": 7}
    with pytest.raises(ConfigError, match=r"env\.name=bandit.*env\.name=dark_room"):
        changes_of(load_config(["env=bandit"]), trained)


@pytest.mark.parametrize(
    ("changes", "suffix"),
    [
        ({}, ""),
        ({"size": 13}, "-size=13"),
        (
            {"variant": "dark_room_classic", "terminate_on_goal": False},
            "-variant=dark_room_classic-terminate_on_goal=false",
        ),
        ({"deviation": 0.5}, "-deviation=0.5"),
    ],
)
def test_suffixes(changes: dict[str, Any], suffix: str) -> None:
    assert suffix_of(changes) == suffix


def test_suffixes_of_long_values_are_short_and_tell_them_apart() -> None:
    one, other = (suffix_of({"tasks": [{"desc": ["SFFF", end]}]}) for end in ("FFFG", "FFGF"))
    assert one != other
    assert all(suffix.removeprefix("-tasks=").isalnum() and len(suffix) == 15 for suffix in (one, other))


@pytest.mark.parametrize(
    "spec",
    [
        SPEC,
        SPEC._replace(max_episode_steps=7),
        SPEC._replace(success="reward"),
        SPEC._replace(num_obs=49, width=7, max_episode_steps=20),
    ],
)
def test_a_readable_world_keeps_all_but_its_clock(spec: EnvSpec) -> None:
    assert readable_spec(CONFIG, spec, TRAINED) == spec._replace(max_episode_steps=20)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_actions": 4}, "number of actions of this world is 4, and the model was trained with 5"),
        ({"reward_values": (0.0, 2.0)}, r"reward values .* is \(0\.0, 2\.0\), .* with \(0\.0, 1\.0\)"),
        ({"num_obs": 50}, "layers of observations of this world is 2, and the model was trained with 1"),
        ({"max_episode_steps": 21}, r"env\.max_episode_steps=21: .*env\.max_episode_steps=20"),
    ],
)
def test_what_cannot_be_read_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        readable_spec(CONFIG, SPEC._replace(**changes), TRAINED)


def test_other_observations_need_coordinates() -> None:
    by_cell = load_config(["env.size=5", "model.obs_encoding=cell"])
    larger = SPEC._replace(num_obs=49, width=7)
    with pytest.raises(ConfigError, match=r"49 observations .* with 25; .*model\.obs_encoding=cell"):
        readable_spec(by_cell, larger, TRAINED)
    assert readable_spec(by_cell, SPEC, TRAINED) == SPEC
    no_room = {"num_obs": 16, "width": 0}
    with pytest.raises(ConfigError, match="17 observations"):
        readable_spec(CONFIG, SPEC._replace(num_obs=17, width=0), TRAINED | no_room)


@pytest.mark.parametrize(("asked", "played"), [(0, 10), (4, 4), (10, 10)])
def test_all_tasks_of_another_world_are_new(asked: int, played: int) -> None:
    config = dataclasses.replace(CONFIG, tasks=dataclasses.replace(CONFIG.tasks, num_held_out=asked))
    tasks, trained = torch.arange(10)[:, None], {"all": [[task] for task in range(8)], "train": [0, 1, 2]}
    found = new_tasks(config, tasks, trained)
    assert len(set(found)) == played and set(found) <= set(range(10))
    everything = new_tasks(CONFIG, tasks, trained)
    assert found == everything[:played] and everything != sorted(everything)  # by a seeded permutation
    other_seed = dataclasses.replace(CONFIG, tasks=dataclasses.replace(CONFIG.tasks, seed=1))
    assert new_tasks(other_seed, tasks, trained) != everything


def test_a_task_that_was_trained_on_is_not_new_under_other_rules() -> None:
    tasks = torch.arange(8)[:, None]
    trained = {"all": tasks.tolist(), "train": [0, 1, 2]}
    assert sorted(new_tasks(CONFIG, tasks, trained)) == [3, 4, 5, 6, 7]
    config = dataclasses.replace(CONFIG, tasks=dataclasses.replace(CONFIG.tasks, num_held_out=6))
    with pytest.raises(ConfigError, match=r"tasks\.num_held_out=6: this world has 5 tasks that are new"):
        new_tasks(config, tasks, trained)


# ---- the whole stage


def test_a_larger_room_is_played_beside_the_first_one(root: Path) -> None:
    logs, videos = root / "logs/tiny", root / "videos/tiny"
    before = (logs / "evaluation/results.json").read_bytes()
    outcome = run("evaluate", root, "env.size=4", "tasks.num_held_out=3", "evaluation.videos=true")
    assert outcome.code == 0, outcome
    results = json.loads((logs / "evaluation-size=4/results.json").read_text())
    assert set(results) == {"config", "held_out_tasks", "curves", "final", "checkpoint"}
    assert list(results["curves"]) == ["model, held-out tasks", "searcher", "random", "optimum"]
    assert set(results["final"]) == {"held_out"} and len(results["held_out_tasks"]) == 3
    assert {"adaptation.png", "goals.png"} <= {path.name for path in (logs / "evaluation-size=4").iterdir()}
    assert [path.name for path in videos.iterdir()] == ["in_context-size=4"]
    assert len(list((videos / "in_context-size=4").iterdir())) == 3
    assert (logs / "evaluation/results.json").read_bytes() == before
    again = run("evaluate", root, "env.size=4", "tasks.num_held_out=3")
    assert again.code == 0 and again.out.splitlines()[:4] == outcome.out.splitlines()[:4]
    assert "tasks.num_held_out=3" in run("evaluate", root, "env.size=4").refusal


def test_a_shorter_clock_leaves_out_what_was_trained_on(root: Path) -> None:
    outcome = run("evaluate", root, "env.max_episode_steps=3")
    assert outcome.code == 0, outcome
    first, second = (
        json.loads((root / f"logs/tiny/{folder}/results.json").read_text())
        for folder in ("evaluation", "evaluation-max_episode_steps=3")
    )
    assert sorted(second["held_out_tasks"]) == sorted(first["held_out_tasks"])
    assert max(second["curves"]["random"]["steps_to_goal"]["mean"]) <= 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["env.max_episode_steps=5"], ["env.max_episode_steps=5", "env.max_episode_steps=4"]),
        (["env.size=4", "model.embed_dim=16"], ["model.embed_dim=8", "16"]),
        (["env=dark_key_to_door"], ["env.name=dark_key_to_door", "env.name=dark_room"]),
        (["tasks.num_train=4"], ["tasks.num_train=5"]),
    ],
)
def test_refusals_leave_nothing_behind(root: Path, options: list[str], words: list[str]) -> None:
    refusal = run("evaluate", root, *options).refusal
    assert all(word in refusal for word in words), refusal
    assert {path.name for path in (root / "logs/tiny").iterdir()} == {"source", "gpt", "evaluation"}
