"""The study of published protocols, planned."""

import pytest
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


def test_published_totals_are_checked() -> None:
    with pytest.raises(ConfigError, match="published"):
        plan(["study=literature", "study.variants=[{label: a, published: [{label: b, value: c, source: d}]}]"])
