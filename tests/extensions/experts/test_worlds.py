"""Worlds with sources that learn nothing, through all three stages."""

from pathlib import Path

import pytest
from pipelines import VARIANTS, check_pipeline

from icrl import extensions

PIPELINES = [("dark_room", "random"), ("gymnasium", "optimal"), *((world, "noise_distillation") for world in VARIANTS)]
if "worlds" in extensions.NAMES:
    PIPELINES += [("dark_key_to_door", "noise_distillation")]


@pytest.mark.parametrize(("world", "source"), PIPELINES)
def test_pipeline(tmp_path: Path, world: str, source: str) -> None:
    check_pipeline(tmp_path, world, source, source == "optimal")
