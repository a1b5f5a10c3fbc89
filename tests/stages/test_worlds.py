"""Every world with sources that fit it, through all three stages."""

import pytest
from harness import SMALL, refusal
from installed import needs
from pipelines import VARIANTS, WORLDS, check_pipeline

from icrl import extensions
from icrl.sources import source_options

# Every world and every source at least once; A2C in a dark room is in `test_pipeline.py`.
PIPELINES = [("dark_room_permuted", "ppo"), *((world, "a2c") for world in VARIANTS)]
if "from_gymnasium" in extensions.NAMES:
    PIPELINES.append(("gymnasium", "a2c"))
if "worlds" in extensions.NAMES:
    PIPELINES += [("dark_key_to_door", "q_learning"), ("bandit", "dqn")]
    PIPELINES += [("garnet", "a3c")] if "async_unrolls" in extensions.NAMES else []
PIPELINES = [(world, source) for world, source in PIPELINES if source in source_options()]


@pytest.mark.parametrize(("world", "source"), PIPELINES)
def test_pipeline(tmp_path, world, source):
    """The stages run in every world, and the optimum beats chance there."""
    check_pipeline(tmp_path, world, source, world in WORLDS and source == dict(reversed(PIPELINES))[world])


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
