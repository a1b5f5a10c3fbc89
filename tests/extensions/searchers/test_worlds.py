"""Worlds with their searchers, through all three stages."""

from pathlib import Path

import pytest
from harness import refusal
from pipelines import check_memories, check_pipeline, options_of

from icrl import extensions

WORLDS = ["dark_room_permuted", *(["bandit", "garnet"] if "worlds" in extensions.NAMES else [])]


@pytest.mark.parametrize("world", WORLDS)
def test_pipeline(tmp_path: Path, world: str) -> None:
    check_pipeline(tmp_path, world, "searcher", world == "dark_room_permuted")


@pytest.mark.parametrize("world", WORLDS)
def test_memories_are_in_the_checkpoint(tmp_path: Path, world: str) -> None:
    check_memories(tmp_path, world, "searcher", 24)


def test_world_without_searcher_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    message = refusal("train_agents", tmp_path, preset=options_of("gymnasium", "searcher"))
    assert "strategy=nearest: there is no such searcher with env.name=gymnasium" in message
