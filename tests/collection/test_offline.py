"""Windows of recorded histories against loops over rows and episodes."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from probes import CPU, changed
from small_histories import MARK, write_histories

from icrl.collection.experience import OfflineWindows
from icrl.config.compose import load_config
from icrl.contracts import ConfigError
from icrl.envs import make_env

CONFIG: Any = load_config(
    ["source=dqn", "env=dark_room", "env.size=4", "env.max_episode_steps=6", "source.num_learners=2"]
)
TASKS = make_env(CONFIG.env).all_tasks()
KEY = torch.tensor(5)


def config_of(root: Path, **changes: Any) -> Any:
    source = changed(CONFIG.source, **{"offline_buffer_dir": "others"} | changes)
    return changed(CONFIG, root=str(root), source=source)


def open_windows(root: Path, tasks: list[int], length: int, **changes: Any) -> OfflineWindows:
    config = config_of(root, **changes)
    return OfflineWindows(config, config.source, TASKS[tasks], length, CPU)


def windows_of_row(ends: list[bool], length: int, used: int, last: bool, every: int) -> list[list[int]]:
    """The steps of each window of a row, from a list of its episodes."""
    steps = list(range(len(ends)))
    steps = steps[len(steps) - used :] if last else steps[:used]
    episodes: list[list[int]] = [[]]
    for step in steps:
        episodes[-1].append(step)
        if ends[step]:
            episodes.append([])
    kept = [step for episode in episodes[::every] for step in episode]
    return [kept[start : start + length] for start in range(len(kept) - length + 1)]


@settings(max_examples=12, deadline=None)
@given(st.data(), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_every_window_of_a_task_is_drawn_once_in_as_many_draws(
    data: st.DataObject, length: int, per_task: int, every: int, last: bool
) -> None:
    """For each learner of the task, from its rows alone, whatever the order of tasks; in the part of the rows and the
    episodes that the options name."""
    num_steps = 20
    ends = torch.tensor(data.draw(st.lists(st.integers(0, 3), min_size=60 * per_task, max_size=60 * per_task)))
    ends = (ends == 0).view(num_steps, 3 * per_task)
    used = data.draw(st.integers(1, num_steps))
    train = [7, 2, 9]
    rows = [windows_of_row(row, length, used, last, every) for row in ends.T.tolist()]
    expected = {
        task: sorted((row, *steps) for row in range(k * per_task, (k + 1) * per_task) for steps in rows[row])
        for k, task in enumerate(train)
    }
    changes = {
        "offline_buffer_length": used if used < num_steps else 0,
        "offline_buffer_range": "last" if last else "first",
        "offline_buffer_every": every,
    }
    tasks = [9, 7]
    with tempfile.TemporaryDirectory() as root:
        write_histories(Path(root), "others", CONFIG, train, per_task, ends)
        if not all(expected[task] for task in tasks):
            with pytest.raises(ConfigError, match=r"source.mini_batch_length=.*source.offline_buffer_dir=others"):
                open_windows(Path(root), tasks, length, **changes)
            return
        windows = open_windows(Path(root), tasks, length, **changes)
    for learner, task in enumerate((9, 9, 7, 7)):
        drawn = windows.draw(len(expected[task]), KEY)
        mine = [column.unflatten(1, (4, -1))[:, learner] for column in drawn]
        steps, row = mine[0], mine[3]
        assert (row == row[0]).all() and (mine[4] == MARK).all()
        assert sorted((r, *s) for r, s in zip(row[0].tolist(), steps.T.tolist(), strict=True)) == expected[task]
        assert torch.equal(mine[5] | mine[6], ends[steps, row]) and mine[5].dtype == mine[6].dtype == torch.bool
        assert torch.equal(mine[2], steps % 2) and torch.equal(mine[1], row % 5) and torch.equal(mine[7], steps % 5)


@pytest.mark.parametrize(
    ("tasks", "changes", "episode", "message"),
    [
        ([1, 4], {}, 6, r"source\.offline_buffer_dir=others: .* has no histories of 1 of the 2 training tasks"),
        ([1], {"offline_buffer_length": 31}, 6, r"source\.offline_buffer_length=31 is more than the 30 steps"),
        ([1], {"offline_buffer_dir": "nobody"}, 6, "no histories in .*nobody"),
        ([1], {}, 7, r"source\.offline_buffer_dir=others: .*env\.max_episode_steps=7"),
    ],
)
def test_refused_histories(tmp_path: Path, tasks: list[int], changes: Any, episode: int, message: str) -> None:
    recorded = changed(CONFIG, env=changed(CONFIG.env, max_episode_steps=episode))
    write_histories(tmp_path, "others", recorded, [1, 2], 1, torch.zeros(30, 2).bool())
    with pytest.raises(ConfigError, match=message):
        open_windows(tmp_path, tasks, 1, **changes)
