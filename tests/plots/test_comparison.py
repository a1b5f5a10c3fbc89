"""Videos of held-out tasks: which tasks, which episodes, whose."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from icrl.config.compose import load_config
from icrl.envs import make_env
from icrl.envs.core import MapView
from icrl.evaluation.in_context import play_episodes
from icrl.evaluation.references import chance
from icrl.plots import comparison
from icrl.plots.walks import write_comparisons
from icrl.plots.video import Frames
from icrl.plots.walks import Walk

LIFE = ("source.num_learners=2", "source.num_envs=2", "source.num_env_steps=400", "source.history_steps=400")
SMALL = (
    *LIFE,
    "source.unroll_length=5",
    "evaluation.num_episodes=7",
    "evaluation.num_streams=2",
    "model.context_len=8",
)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (["source=a2c", "source.hidden_size=8"], ["model", "A2C"]),
        (["source=noise_distillation"], ["model", "noisy expert"]),
        (["source=noise_distillation", "source.teacher=someone"], ["model"]),
    ],
)
@pytest.mark.parametrize("world", ["dark_room", "bandit"])
def test_the_model_is_shown_above_a_source_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: list[str], names: list[str], world: str
) -> None:
    options = ["env.num_arms=3"] if world == "bandit" else ["env.size=5", "env.max_episode_steps=10"]
    config = load_config([f"env={world}", *options, *source, *SMALL])
    env = make_env(config.env)
    tasks = env.all_tasks()[[0, 7, 2, 1, 3]]  # in a room 4, 1, 2, 3 and 3 steps away
    _, played = play_episodes(chance(env, config), env, tasks, 2, 7, seed=0)
    shown: list[tuple[list[str], MapView]] = []
    written: list[str] = []

    def rows_of(rows: Sequence[tuple[str, Sequence[tuple[str, Walk]]]], view: MapView) -> Frames:
        shown.append(([name for name, _ in rows], view))
        for name, walks in rows:
            *first, last = (label for label, _ in walks)
            assert first == ["episode 1", "episode 5"]
            assert last == "episode 7" or name != "model"
        return np.zeros((1, 2, 2, 3), np.uint8)

    def write(path: Path, frames: Frames, fps: float) -> None:
        assert path.parent == tmp_path
        written.append(path.stem)

    monkeypatch.setattr(comparison, "side_by_side", rows_of)
    monkeypatch.setattr(comparison, "write_video", write)
    write_comparisons(config, tmp_path, env, tasks, played, torch.device("cpu"))
    chosen: list[Any] = [0, 2, 4] if world == "bandit" else [1, 3, 0]  # the nearest, one between, the farthest
    assert written == [env.label(tasks[index]) for index in chosen]
    assert shown == [(names, env.map_view(tasks[index])) for index in chosen]
