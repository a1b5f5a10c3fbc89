"""Reward plug-ins: the built-in ones against loops, and refusal of invalid files and results."""

import hashlib
import json
import os
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Discrete
from hypothesis import given, settings
from hypothesis import strategies as st
from lives import NUM_ROWS, PER_TASK, TRAIN, histories_of, random_done
from pages import run_blocks
from refusals import check_refusal

from icrl.contracts import ConfigError, PipelineError
from icrl.data.history_store import Histories
from icrl.extensions.offline_rl import rewards
from icrl.runs.files import PROJECT
from icrl.spaces import discrete_spec

SPEC = discrete_spec(num_obs=12, num_actions=5, reward_values=(-0.5, 0.0, 1.0), width=3, max_episode_steps=4)

GOALS = [[10 * task] for task in range(9)]  # any numbers
steps_of = st.lists(st.tuples(st.sampled_from([-0.5, 0.0, 1.0]), st.booleans(), st.booleans()), min_size=1, max_size=20)


def history(reward, *ends, cells=None, goal=0, width=3) -> rewards.History:
    """A life with these rewards, terminations and truncations, and moves."""
    num_steps, spec = len(reward), SPEC._replace(width=width, observation_space=Discrete(width**2))
    terminated, cut = np.array(ends or [[False] * num_steps] * 2)
    before, after = np.array(cells or [(0, 0)] * num_steps).T
    episode = np.cumsum(terminated | cut) - (terminated | cut)
    nothing, floats = np.zeros(num_steps, np.int64), np.array(reward, np.float32)
    columns = (before, nothing, floats, after, nothing, terminated, cut, episode, np.array([goal, 5]))
    return rewards.History(*columns, spec=spec, world="dark_room")


def stored(done: np.ndarray, reward: np.ndarray | None = None, world: str = "frozen_lake") -> Histories:
    """The histories of `lives.py` with a table of tasks."""
    lives = histories_of(done, reward)
    lives.manifest["tasks"] = {"train": TRAIN, "all": GOALS}
    lives.manifest["config"] = {"env": {"name": world}}
    return lives


def write(folder: Path, text: str, name: str = "plugin.py") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def test_rewards_by_hand() -> None:
    """Distances in a room of 5 x 5, where moves number at most 8, to the cell 17 of row 3 and column 2."""
    cells = [(0, 1), (1, 1), (24, 19), (19, 24), (12, 17)]  # 5 to 4 moves away, 4 to 4, 3 to 2, 2 to 3, 1 to 0
    life = history([-0.5, 0.0, 0.0, 0.0, 1.0], cells=cells, goal=17, width=5)
    assert rewards.BUILT_IN["identity"](life).tolist() == [-0.5, 0, 0, 0, 1]
    assert rewards.BUILT_IN["step_penalty"](life).tolist() == [-0.75, -0.25, -0.25, -0.25, 0.75]
    found = rewards.BUILT_IN["distance"](life)
    assert found.dtype == np.float32 and found.tolist() == [-0.375, 0, 0.125, -0.125, 1.125]
    moving = stored(random_done(6), world="dark_room")
    moving.manifest["config"]["source"] = {"task_change": 0.2}
    for lives, why in ((stored(random_done(6)), "env.name=frozen_lake"), (moving, "one task a row")):
        with pytest.raises(ConfigError, match=rf"critic\.reward_plugin=distance.*{why}"):
            rewards.training_rewards(rewards.load_plugin("distance"), lives, [0], 6)


@settings(max_examples=50, deadline=None)
@given(steps=steps_of)
def test_improvement_over_the_best_so_far(steps: list[tuple[float, bool, bool]]) -> None:
    reward, terminated, truncated = (list(column) for column in zip(*steps, strict=True))
    expected, best, total = [], 0.0, 0.0
    for value, ends, is_cut in steps:
        total += value
        expected.append(max(0.0, total - best) if ends or is_cut else 0.0)
        if ends or is_cut:
            best, total = max(best, total), 0.0
    found = rewards.BUILT_IN["improvement"](history(reward, terminated, truncated))
    assert found.dtype == np.float32 and found.tolist() == expected and found.sum() == best


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 12), st.integers(1, 15), st.integers(0, 99), st.integers(0, NUM_ROWS - 1))
def test_a_plugin_reads_the_first_steps_of_each_life(num_steps: int, shown: int, seed: int, row: int) -> None:
    done, kept = random_done(num_steps, seed), min(num_steps, shown)
    lives = stored(done, reward=~done)
    lives = replace(lives, columns=lives.columns | {"next_obs": lives.columns["obs"] + 1})
    given_lives = []
    look = rewards.RewardPlugin("look", "", "", lambda life: given_lives.append(life) or life.reward)
    rewards.training_rewards(look, lives, [row], shown)
    (life,) = given_lives
    assert life.obs.tolist() == [row] * kept and life.next_obs.tolist() == [row + 1] * kept
    assert life.timestep.tolist() == list(range(kept)) and life.action.tolist() == [step % 5 for step in range(kept)]
    assert life.reward.tolist() == [0 if ends else 1 for ends in done[row, :kept]]
    terminated, truncated = (life.terminated, life.truncated) if row % 2 == 0 else (life.truncated, life.terminated)
    assert terminated.tolist() == done[row, :kept].tolist() and not truncated.any()
    assert life.episode.tolist() == [int(done[row, :step].sum()) for step in range(kept)]
    assert life.task.tolist() == GOALS[TRAIN[row // PER_TASK]]
    assert life.spec == lives.spec and life.world == "frozen_lake"
    kinds = "int64 int64 float32 int64 int64 bool bool int64 int64"
    assert [str(column.dtype) for column in life[:-2]] == kinds.split()
    assert not any(column.flags.writeable for column in life[:-2])


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("list(history.reward)", "returns list, "),
        ("history.reward[:, None]", "float32 array of shape (6, 1), not a NumPy float32 array of shape (6,)"),
        ("history.reward.astype(np.float64)", "float64 array of shape (6,), not a NumPy float32 array of shape (6,)"),
        ("np.float32([0, -np.inf, 2, np.nan, 4, 5])", "-inf at step 1"),
        ("history.rewards", "AttributeError: 'History' object has no attribute 'rewards'"),
        ("history.reward.fill(1)", "ValueError: assignment destination is read-only"),
    ],
)
def test_wrong_rewards_are_refused(tmp_path: Path, expression: str, named: str) -> None:
    plugin = write(tmp_path, f"import numpy as np\n\n\ndef get_reward(history):\n    return {expression}\n")
    load = lambda _: rewards.training_rewards(rewards.load_plugin(plugin), stored(random_done(6)), [3, 5], 6)  # noqa: E731
    check_refusal(load, [], (f"critic.reward_plugin={plugin}", named, "in row 3 of codes"))


def test_a_file_is_loaded_with_its_text_and_leaves_nothing_behind(tmp_path: Path, monkeypatch) -> None:
    """The text that runs is the one that is there now, even if its length and time are those of another."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    before, path, plugins = set(sys.modules), list(sys.path), []
    for number in (1, 2):
        text = f"import math  # ä\nN = math.floor({number}.5)\n\n\ndef get_reward(life):\n    return life.reward + N\n"
        write(tmp_path, text)
        os.utime("plugin.py", (10**9, 10**9))
        plugins.append(rewards.load_plugin("plugin.py"))
        assert plugins[-1][:3] == ("plugin.py", text, hashlib.sha256(text.encode()).hexdigest())
    assert set(sys.modules) == before and sys.path == path and os.listdir(tmp_path) == ["plugin.py"]
    found = [rewards.training_rewards(plugin, stored(random_done(2)), [0], 2).tolist() for plugin in plugins]
    assert found == [[[1, 1]], [[2, 2]]]


def test_files_that_are_no_plugins_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    built_in = "must be one of identity, step_penalty, "
    for name, *named in (
        (str(tmp_path / "gone.py"), "No such file or directory", built_in),
        (str(tmp_path / "folder.py"), "Is a directory", built_in),
        ("identities", built_in),
        (write(tmp_path, "def get_reward(history): ...", "old.pyc"), built_in),
        ("a" * 300 + ".py", "File name too long"),
        (write(tmp_path, "def get_reward(:", "syntax.py"), "SyntaxError: invalid syntax"),
        (write(tmp_path, "import sys\nsys.exit(3)", "exits.py"), "SystemExit: 3"),
        (write(tmp_path, "get_reward = 1.5", "number.py"), "get_reward"),
        (write(tmp_path, "# coding: klingon", "coding.py"), "unknown encoding"),
    ):
        check_refusal(lambda _, name=name: rewards.load_plugin(name), [], (f"critic.reward_plugin={name}", *named))


def test_a_continued_run_needs_the_same_text(tmp_path: Path) -> None:
    """Wherever it lies."""
    names = [write(tmp_path, f"def get_reward(history): return {n}", f"{n}.py") for n in "ab"]
    one, other, own, distance = map(rewards.load_plugin, (*names, "identity", "distance"))
    for now, before in ((one, one), (own, own), (one._replace(name="elsewhere.py"), one)):
        assert rewards.described(before) == {"name": before.name, "sha256": before.sha256, "text": before.text}
        rewards.check_plugin(now, json.loads(json.dumps(rewards.described(before))), tmp_path)
    changed = rewards.load_plugin(write(tmp_path, "def get_reward(history): return 0", "a.py"))
    for now, before in ((other, one), (changed, one), (own, one), (one, own), (own, distance)):
        named = (str(tmp_path), f"critic.reward_plugin={before.name}", now.name)
        named += (now.sha256[:12], before.sha256[:12]) if {now, before} <= {one, other, changed} else ()
        check_refusal(
            lambda _, now=now, before=before: rewards.check_plugin(now, rewards.described(before), tmp_path), [], named
        )
    with pytest.raises(PipelineError, match=r"does not say which critic\.reward_plugin"):
        rewards.check_plugin(own, {"name": "identity"}, tmp_path)


def test_the_plug_in_of_the_page_pays_new_cells_once() -> None:
    found = run_blocks("docs/offline_rl.md", PROJECT, pytest.MonkeyPatch())
    columns = {"episode": [0, 0, 0, 1], "next_obs": [3, 4, 3, 3], "reward": [0.0, 0.0, 1.0, 0.0]}
    paid = found["get_reward"](Namespace(**{name: np.array(column) for name, column in columns.items()}))
    np.testing.assert_allclose(paid, [0.1, 0.1, 1.0, 0.1])
