"""References: which ones a world has, and exact against played ones."""

import pytest
from played_chance import check_chance

from icrl.app.compose import load_config
from icrl.envs import make_env
from icrl.evaluation import references
from icrl.evaluation.references import exact_references, references_of

ROOM = [
    "searcher",
    "covering plan",
    *(f"{kind} walk with goal memory" for kind in ("persistent", "turning", "uniform")),
]
REFERENCES = {"dark_room": ROOM, "dark_room_classic": ROOM, "dark_room_permuted": ["searcher"]}


@pytest.mark.parametrize("name", REFERENCES)
def test_each_world_has_its_own(name: str) -> None:
    config = load_config([f"env={name}", "env.size=3", "env.max_episode_steps=6"])
    assert list(references_of(make_env(config.env))) == REFERENCES[name]


def test_without_one_start_there_is_no_plan_and_without_a_planner_chance_is_played(monkeypatch) -> None:
    config = load_config(["env=dark_room", "env.random_start=true"])
    assert list(references_of(make_env(config.env))) == ["searcher"]
    env = make_env(config.env)
    monkeypatch.setattr(env, "has_planner", False)
    monkeypatch.setattr(references, "searchers_in", lambda _: {})
    assert exact_references(env, env.all_tasks()) == {} and list(references_of(env)) == ["random"]


@pytest.mark.parametrize("name", [name for name in REFERENCES if name != "dark_room_classic"])
def test_played_chance_agrees_with_the_exact_one(name: str) -> None:
    config = load_config([f"env={name}", "env.size=3"])
    env = make_env(config.env)
    check_chance(env, env.all_tasks()[:4], 300)
