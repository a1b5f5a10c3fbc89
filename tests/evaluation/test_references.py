"""References: which ones a world has, and exact against played ones."""

import pytest

from icrl.app.compose import load_config
from icrl.envs import make_env
from icrl.evaluation import references
from icrl.evaluation.references import exact_references, references_of


def test_worlds_without_searchers_have_exact_references_or_play_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "searchers_in", lambda _: {})
    env = make_env(load_config(["env=dark_room", "env.random_start=true"]).env)
    assert list(exact_references(env, env.all_tasks())) == ["random", "optimum"] and references_of(env) == {}
    monkeypatch.setattr(env, "has_planner", False)
    assert exact_references(env, env.all_tasks()) == {} and list(references_of(env)) == ["random"]
