"""A world of vectors of one's own through all stages."""

from pathlib import Path

from installed import needs
from own_vectors import check_told_by_its_returns


@needs("ppo")
@needs("vectors")
def test_a_world_of_ones_own_without_success_and_pictures_is_told_by_its_returns(tmp_path: Path) -> None:
    source = ("source=ppo_vectors", "objective=ad", "source.hidden_size=8", "source.mini_batch_size=5")
    check_told_by_its_returns(("train_agents", "train_gpt", "evaluate"), source, False, tmp_path)  # none can succeed
