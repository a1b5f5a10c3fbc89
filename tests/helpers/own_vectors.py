"""A world of vectors of one's own through stages."""

import re
from pathlib import Path

import numpy as np
import pytest
from harness import TINY, done
from harness import curves_of as curves_on_disk

from icrl import extensions
from icrl.envs.core import EXPERT
from icrl.runs.files import PROJECT, read_json

if "films" in extensions.NAMES:
    from icrl.extensions.films import walks

PROBES = ("evaluation.ablations", "evaluation.temperatures")
OWN = (  # a class of one's own, with the options of its author and the smallest sizes
    *("env=gymnasium", f"env.id={PROJECT}/tests/helpers/hidden_target.py:HiddenTarget", "env.max_episode_steps=4"),
    "env.tasks={random: {x: [-1.0, 1.0], y: [-1.0, 1.0]}, count: 9}",
    *(
        option
        for option in TINY
        if not option.startswith(("env.", "tasks.", "data.min", "source.hidden", "evaluation.videos", *PROBES))
    ),
    *("source.num_envs=1", "source.num_env_steps=60", "source.history_steps=60", "source.videos_per_task=1"),
)
SHORT = r"in short +model, held-out tasks: return (-\d+\.\d\d) in episode 1, -\d+\.\d\d in the last quarter\n"


def check_told_by_its_returns(
    stages: tuple[str, ...], source: tuple[str, ...], has_expert: bool, tmp_path: Path
) -> None:
    """From the first command to a sentence about adaptation, without a refusal; scaled if there is an expert."""
    if filmed := "films" in extensions.NAMES:
        walks.report.cache_clear()
    told = "".join(done(stage, tmp_path, *source, preset=OWN) for stage in stages)
    results = read_json(tmp_path / "logs/tiny/evaluation/results.json")
    curves = results["curves"]["model, held-out tasks"]
    (first,) = re.findall(SHORT, told)
    assert float(first) == pytest.approx(curves["returns"]["mean"][0], abs=0.006)
    assert told.index("in short") < told.index("return at episode") < told.index("look first")
    assert told.count("env.success=return") == 1
    assert told.count("no videos, because the world has no pictures") == filmed
    assert "success 0" not in told and "steps to goal" not in told and "solved" not in told
    assert ("of the way from random play to the expert" in told) == ("scaled_return" in curves) == has_expert
    folder = tmp_path / "logs/tiny/evaluation"
    assert {path.stem for path in folder.glob("*.png")} == {"adaptation", "goals", "probes"}
    assert not (tmp_path / "videos").exists()
    tags = {f"adaptation/{name}" for name in ("returns", *(["scaled_return"] if has_expert else []))}
    assert set(curves_on_disk(folder / "model-held-out_tasks")) == tags
    if has_expert:
        ends = [np.mean(results["curves"][name]["returns"]["mean"]) for name in ("random", EXPERT)]
        scaled = (np.array(curves["returns"]["mean"]) - ends[0]) / (ends[1] - ends[0])
        np.testing.assert_allclose(curves["scaled_return"]["mean"], scaled)
