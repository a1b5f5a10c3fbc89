"""A world of vectors of one's own through all stages, with an expert of all its tasks."""

from pathlib import Path

import pytest
from own_vectors import check_told_by_its_returns

LEARNER = "source.expert=['source=expert','source.num_env_steps=256','source.history_steps=256','source.hidden_size=8']"


@pytest.mark.parametrize(
    "stages", [("train_agents", "train_gpt", "evaluate"), pytest.param(("pipeline",), marks=pytest.mark.long)]
)
def test_returns_are_scaled_by_those_of_the_expert(stages: tuple[str, ...], tmp_path: Path) -> None:
    check_told_by_its_returns(stages, ("source=taught", LEARNER, "objective=dpt"), True, tmp_path)
