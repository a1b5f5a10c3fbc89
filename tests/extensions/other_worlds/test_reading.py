"""A trained model in another world: the worlds that it can read, the tasks that are new to it, and the results."""

import json
from pathlib import Path
from typing import Any

import pytest
from gymnasium.spaces import Box, Discrete
from harness import done, run
from installed import FILMED
from other_worlds import changed, holding_out, played

from icrl.app.compose import load_config
from icrl.app.root import Config
from icrl.config.options import replace
from icrl.contracts import ConfigError
from icrl.evaluation.diagnostics import diagnostics
from icrl.extensions.other_worlds.reading import readable_spec
from icrl.runs.files import read_json
from icrl.spaces import discrete_spec

CONFIG = load_config(["env.size=5"])
BY_CELL = load_config(["env.size=5", "model.obs_encoding=cell"])
SPEC = discrete_spec(25, 5, (0.0, 1.0), 5, 20, "goal")
TRAINED = json.loads(json.dumps(SPEC.to_json()))  # as checkpoints keep it: lists for tuples


def test_a_readable_world_keeps_all_but_its_clock() -> None:
    for changes in ({"max_episode_steps": 7}, {"success": "reward"}, {"observation_space": Discrete(49), "width": 7}):
        spec = SPEC._replace(**changes)
        assert readable_spec(CONFIG, spec, TRAINED) == spec._replace(max_episode_steps=20)


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (CONFIG, {"action_space": Discrete(4)}, "number of actions of this world is 4, but .* trained with 5"),
        (CONFIG, {"reward_values": (0.0, 2.0)}, r"reward values .* is \(0\.0, 2\.0\), .* with \(0\.0, 1\.0\)"),
        (CONFIG, {"observation_space": Discrete(50)}, "layers of observations of this world is 2, .* with 1"),
        (CONFIG, {"max_episode_steps": 21}, r"env\.max_episode_steps=21: .*env\.max_episode_steps=20"),
        (
            BY_CELL,
            {"observation_space": Discrete(49), "width": 7},
            r"49 observations, .* with 25; .*model\.obs_encoding=.*not with cell",
        ),
    ],
)
def test_unreadable_worlds_are_refused(config: Config, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        readable_spec(config, SPEC._replace(**changes), TRAINED)


def test_spaces_that_cannot_be_counted_must_be_equal() -> None:
    arm = SPEC._replace(observation_space=Box(-1, 1, (3,)), action_space=Box(-2, 2, (1,)), width=0)
    assert readable_spec(CONFIG, arm, arm.to_json()) == arm
    for changes in ({"action_space": Box(-2, 2, (2,))}, {"observation_space": Box(-1, 1, (4,))}):
        with pytest.raises(ConfigError, match=r"env: the space of .* of this world is Box\(.*, .* with Box\("):
            readable_spec(CONFIG, arm._replace(**changes), arm.to_json())


@pytest.mark.parametrize(("asked", "number"), [(0, 15), (4, 4)])
def test_all_tasks_of_another_room_are_new(asked: int, number: int) -> None:
    """The number of a cell is another cell there."""
    smaller = changed(CONFIG, size=4)
    other_seed = replace(smaller, tasks=replace(CONFIG.tasks, seed=1))
    one, another, found = (
        played(config, CONFIG, [0, 1, 2]) for config in (smaller, other_seed, holding_out(smaller, asked))
    )
    assert len(found) == number and [10] not in found  # the centre
    assert found == one[:number] and one not in (another, sorted(one))  # by a seeded permutation


@pytest.mark.parametrize("options", [{"max_episode_steps": 9}, {"terminate_on_goal": False}, {"random_start": True}])
def test_a_training_goal_is_not_new_under_other_rules(options: dict[str, Any]) -> None:
    """Whatever its number is there: with random starts the centre, cell 12, is a goal as well."""
    goals = set(range(25)) if "random_start" in options else set(range(25)) - {12}
    found = played(changed(CONFIG, **options), CONFIG, [0, 5, 11, 12, 23])  # the goals 0, 5, 11, 13 and 24
    assert sorted(found) == [[goal] for goal in sorted(goals - {0, 5, 11, 13, 24})]


def test_a_goal_with_its_actions_in_order_is_the_same_task() -> None:
    """Of the permuted tasks of a training goal, only that with the first permutation was met."""
    found = played(changed(CONFIG, permute_actions=True), CONFIG, [0, 5])
    assert len(found) == 24 * 120 - 2
    assert not {(0, 0), (5, 0)} & {tuple(task) for task in found} and [0, 1] in found


def test_more_tasks_than_are_new_are_refused() -> None:
    config = holding_out(CONFIG, 22)
    assert len(played(config, CONFIG, [0, 1])) == 22
    with pytest.raises(ConfigError, match=r"tasks\.num_held_out=22: must be at most 21"):
        played(config, CONFIG, [0, 1, 2])
    with pytest.raises(ConfigError, match="trained on all 24 tasks of this world"):
        played(CONFIG, CONFIG, list(range(24)))


def test_a_larger_room_is_played_beside_the_first_one(root: Path) -> None:
    logs, videos = root / "logs/tiny", root / "videos/tiny"
    before = (logs / "evaluation/results.json").read_bytes()
    options = ("env.size=4", "tasks.num_held_out=3", "evaluation.videos=true", "evaluation.moved_goal=true")
    done("evaluate", root, *options)
    results = read_json(logs / "evaluation-size=4/results.json")
    shown, *others = results["curves"]
    assert shown == "model, held-out tasks" and {"random", "optimum"} <= {*others}
    assert set(results["final"]) == {"held_out"} and len(results["held_out_tasks"]) == 3
    assert {section for diagnostic in diagnostics() for section in diagnostic.forms} <= set(results)
    assert {"adaptation.png", "goals.png"} <= {path.name for path in (logs / "evaluation-size=4").iterdir()}
    if FILMED:
        assert [path.name for path in videos.iterdir()] == ["in_context-size=4"]
        assert len(list((videos / "in_context-size=4").iterdir())) == 3
    assert (logs / "evaluation/results.json").read_bytes() == before


def test_refusals_leave_nothing_behind(root: Path) -> None:
    for options, words in (
        (["env.max_episode_steps=3", "tasks.num_held_out=4"], ["tasks.num_held_out=4", "must be at most 3"]),
        (["env.size=4", "model.embed_dim=16"], ["model.embed_dim=8", "16"]),
        (["env.size=4", "evaluation.tasks=development"], ["evaluation.tasks=development", "evaluation.tasks=test"]),
    ):
        refusal = run("evaluate", root, *options).refusal
        assert all(word in refusal for word in words), refusal
        assert {path.name for path in (root / "logs/tiny").iterdir()} == {"source", "gpt", "evaluation"}
