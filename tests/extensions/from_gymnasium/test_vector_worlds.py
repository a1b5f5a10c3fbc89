"""A world of vectors of one's own through all stages."""

from pathlib import Path

from harness import done, refusal
from installed import needs
from own_vectors import OWN, check_told_by_its_returns


@needs("ppo")
def test_a_world_of_ones_own_without_success_and_pictures_is_told_by_its_returns(tmp_path: Path) -> None:
    source = ("source=ppo_vectors", "objective=ad", "source.hidden_size=8", "source.mini_batch_size=5")
    check_told_by_its_returns(("train_agents", "train_gpt", "evaluate"), source, False, tmp_path)  # none can succeed
    trials = ("finetune.trial_steps=12", "model.context_len=8", "finetune.num_iterations=1", "policy.model=finetuned")
    said = refusal("finetune", tmp_path, *source, *trials, preset=OWN)
    assert "finetune.bonus=0.25" in said and "give finetune.bonus=0" in said
    for stage in ("finetune", "evaluate"):
        done(stage, tmp_path, *source, *trials, "finetune.bonus=0", preset=OWN)
    assert (tmp_path / "logs/tiny/evaluation-policy=finetuned/results.json").exists()
