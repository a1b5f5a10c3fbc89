"""Learning to search, all stages in a small room: what no policy without a memory of earlier episodes can do."""

import json
from pathlib import Path
from typing import Any

import pytest
from continued import check_continues
from installed import needs
from pipelines import check_pipeline, options_of

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.contracts import ConfigError
from icrl.programs import evaluate, train_agents, train_gpt

SMALL = (
    *("experiment=search", "env=tiny_room", "num_threads=1", "source.num_env_steps=120", "source.history_steps=120"),
    *("source.num_learners=40", "source.videos_per_task=0", "data.num_development_tasks=2", "model.max_size=9"),
    *("model.context_len=40", "model.embed_dim=32", "model.ff_dim=64", "trainer.num_iterations=250"),
    *("trainer.mini_batch_size=32", "trainer.evaluate=false", "device.amp_dtype=none"),
    *("evaluation.num_episodes=10", "evaluation.num_streams=8", "evaluation.temperatures=[]"),
    "evaluation.videos=false",
)


@pytest.mark.long
def test_a_model_of_the_covering_plan_searches_with_its_memory(tmp_path: Path) -> None:
    """It covers a room without a goal nearly as the plan does (0.417, 0.833, 1 of the cells), and with its context
    wiped only what one path covers."""
    config = load_config([*SMALL, f"root={tmp_path}"])
    assert config.data.kept_steps == 40 + 10 - 1 and config.name == "tiny_room-search"
    train_agents.main(config)
    train_gpt.main(config)
    found: Any = json.loads((evaluate.main(config) / "results.json").read_text())
    kept, wiped = (found["coverage"][f"model, context {how}"]["mean"] for how in ("kept", "wiped at reset"))
    walk = found["coverage"]["persistent walk with goal memory"]["mean"]
    assert kept[0] > 0.35 and kept[3] > 0.9
    assert wiped[4] < 0.5 < walk[3] < 0.7
    assert found["coverage_gain"]["model, context kept"]["low"][3] > 0.4
    assert found["final"]["train"]["success"]["mean"] > 0.9


@needs("changing_tasks")
def test_moving_goals_keep_the_development_tasks_that_they_were_recorded_with(tmp_path: Path) -> None:
    short = ("source.task_change=0.2", "trainer.num_iterations=1", "source.num_learners=2")
    config = load_config([*SMALL, f"root={tmp_path}", *short])
    train_agents.main(config)
    other = replace(config, data=replace(config.data, num_development_tasks=3))
    with pytest.raises(ConfigError, match="'num_development_tasks': 3.*'num_development_tasks': 2"):
        train_gpt.main(other)
    train_gpt.main(config)


# ---- worlds with their searchers, through all three stages


@needs("worlds")
def test_pipeline(tmp_path: Path) -> None:
    """That of rooms is run below as far as histories, by `test_worlds` of stages from there on."""
    check_pipeline(tmp_path, "garnet", "searcher", evaluated=True)


def test_memories_are_in_the_checkpoint(tmp_path: Path) -> None:
    """A run that continues from the middle records the same histories."""
    options = options_of("dark_room_permuted", "searcher", "source.videos_per_task=0", "checkpoints.num_checkpoints=3")
    check_continues("train_agents", tmp_path, "logs/small/source", *options, step=23, preset=())
