"""The study of published protocols, planned."""

from pathlib import Path

import pytest
from harness import done
from installed import needs

from icrl import extensions
from icrl.contracts import ConfigError

if "studies" in extensions.NAMES:
    from icrl.extensions.studies.plan import plan

pytestmark = needs("studies")


def test_every_protocol_has_its_length_and_its_published_totals() -> None:
    _, rows, jobs = plan(["study=literature"])
    found = {row.variant: row for row in rows}
    steps = {"5 arms, 100 pulls": 100, "50 arms, 500 pulls": 500, "random MDPs, 25 episodes": 250}
    steps |= {"ten gaussian arms, one fixed": 100, "treasure rooms, values from 0": 90}
    for name, number in steps.items():
        config = found[name].config
        life = config.evaluation.num_episodes * config.env.max_episode_steps
        assert life == config.model.context_len == config.finetune.trial_steps == number
    for row in rows:
        assert {"RL^2", "random"} & {one["label"] for one in row.published} and row.config.tasks.num_held_out == 1000
    programs = {job.name: [command[0] for command in job.commands] for job in jobs}
    assert programs["study-literature-10-arms-100-pulls-seed0"] == ["finetune", "evaluate"], "nothing is distilled"
    assert programs["study-literature-5-arms-100-pulls-from-a2c-seed2"] == ["train_gpt", "finetune", "evaluate"]


@pytest.mark.parametrize(
    "world", ["env=bandit_fixed_arm env.num_tasks=12", "env=dirichlet_mdp env.num_tasks=12", "env=treasure_room"]
)
def test_trials_from_random_weights_need_nothing_but_the_split_of_the_histories(world: str, tmp_path: Path) -> None:
    """These are too short for an agent to succeed, or for windows."""
    small = (
        *(*world.split(), "name=small", "device=cpu", "num_threads=1", "source.videos_per_task=0"),
        *("tasks.num_train=8", "tasks.num_held_out=4", "data.num_development_tasks=2", "evaluation.videos=false"),
        *("model.embed_dim=8", "model.num_layers=1", "model.num_heads=2", "model.ff_dim=16", "trainer.evaluate=false"),
        *("finetune.num_iterations=1", "finetune.num_tasks=2", "finetune.num_streams=2", "finetune.num_mini_batches=1"),
    )
    for stage in ("train_agents", "finetune"):
        done(stage, tmp_path, preset=small)
    assert (tmp_path / "logs/small/finetuned/finished.json").exists()


def test_published_totals_are_checked() -> None:
    with pytest.raises(ConfigError, match="published"):
        plan(["study=literature", "study.variants=[{label: a, published: [{label: b, value: c, source: d}]}]"])
