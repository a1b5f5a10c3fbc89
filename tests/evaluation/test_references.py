"""Policies to play beside a model."""

from typing import Any

import pytest
from worlds import WORLDS

from icrl.app.compose import load_config
from icrl.envs import make_env
from icrl.envs.policies import Chance
from icrl.evaluation import references
from icrl.evaluation.in_context import play_episodes


def test_a_room_without_its_goal_has_no_success() -> None:
    env: Any = WORLDS["terminating room"]()
    found, played = play_episodes(Chance(env.spec), env, env.unsolvable(env.all_tasks()[:6]), 5, 8, seed=0)
    assert not found.success.any() and not played.terminated.any() and not played.reward.any()


def test_worlds_without_searchers_have_exact_references_or_play_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "searchers_in", lambda _: {})
    env, exact = make_env(load_config(["env=dark_room"]).env), {"random": {}, "optimum": {}}
    monkeypatch.setattr(references, "EXACT", [lambda env, tasks: exact])
    assert references.exact_references(env, env.all_tasks()) == exact and references.references_of(env) == {}
    monkeypatch.setattr(references, "EXACT", [])
    assert references.exact_references(env, env.all_tasks()) == {}
    assert list(references.references_of(env)) == ["random", "optimum"]
    monkeypatch.setattr(env, "has_planner", False)
    assert list(references.references_of(env)) == ["random"]
