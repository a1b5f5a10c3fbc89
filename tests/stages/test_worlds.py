"""Every world with sources that fit it, through all three stages."""

import pytest
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
