"""Every world with sources that fit it, through all three stages."""

import pytest
from harness import SMALL, refusal
from installed import needs
from pipelines import check_pipeline

from icrl import extensions
from icrl.sources import source_options

# Every source at least once; A2C in a dark room is in `test_pipeline.py`. More worlds are in tests of searchers and of
# sources that learn nothing; here those are evaluated that are not evaluated there.
PIPELINES = [("dark_room_permuted", "ppo", False)]
if "from_gymnasium" in extensions.NAMES:
    PIPELINES.append(("frozen_lake", "a2c", False))
if "worlds" in extensions.NAMES:
    PIPELINES += [("dark_key_to_door", "q_learning", True), ("bandit", "dqn", True)]
    PIPELINES += [("garnet", "a3c", True)] if "async_unrolls" in extensions.NAMES else []


@pytest.mark.parametrize(("world", "source", "evaluated"), [one for one in PIPELINES if one[1] in source_options()])
def test_pipeline(tmp_path, world, source, evaluated):
    check_pipeline(tmp_path, world, source, evaluated)


@needs("from_gymnasium")
@needs("value_sources")
def test_world_of_vectors_without_tables_is_refused_before_anything_is_written(tmp_path):
    message = refusal(
        "train_agents",
        tmp_path,
        preset=("env=gymnasium_pendulum", "source=q_learning", *SMALL, "env.max_episode_steps=9"),
    )
    assert "source.name=q_learning needs Discrete observations and actions, not Box(" in message
    assert not list(tmp_path.iterdir())
