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
from hypothesis import given, settings
from hypothesis import strategies as st
from lives import ALIKE, NUM_ROWS, PER_TASK, TRAIN, histories_of, random_done
from pages import run_blocks
from refusals import check_refusal
from stores import mixture_of, written

from icrl.contracts import ConfigError, PipelineError
from icrl.data.history_store import Histories
from icrl.extensions.offline_rl import rewards
from icrl.runs.files import PROJECT

GOALS = [[10 * task] for task in range(9)]  # any numbers


def stored(done: np.ndarray, reward: np.ndarray | None = None, world: str = "frozen_lake") -> Histories:
    """The histories of `lives.py` with a table of tasks."""
    lives = histories_of(done, reward)
    lives.manifest["tasks"] = {"train": TRAIN, "all": GOALS}
    lives.manifest["config"] = {"env": {"name": world}}
    return lives


def write(folder: Path, text: str, name: str = "plugin.py") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def test_identity_is_the_recorded_reward_and_plugins_read_one_task_a_row() -> None:
    lives = stored(done := random_done(6), reward=~done)
    found = rewards.training_rewards(rewards.load_plugin("identity"), lives, [0, 3], 6)
    assert found.dtype == np.float32 and found.tolist() == [[0 if ends else 1 for ends in done[row]] for row in (0, 3)]
    lives.manifest["config"]["source"] = {"task_change": 0.2}
    with pytest.raises(ConfigError, match=r"critic\.reward_plugin=identity reads one task per row"):
        rewards.training_rewards(rewards.load_plugin("identity"), lives, [0], 6)


@settings(max_examples=15)
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


def test_the_largest_reward_is_that_of_a_step_of_any_sign(tmp_path: Path) -> None:
    paid = np.zeros((24, 130), np.float32)
    paid[0, 3], paid[1, 7] = -3.0, 2.0
    mixture = mixture_of(written(tmp_path / "store"), {}, ALIKE, lambda _, rows, steps: paid[rows, :steps])
    assert rewards.largest_reward(mixture) == 3.0


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("list(history.reward)", "returns list, "),
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
    built_in = "must be identity, or a Python file"
    for name, *named in (
        (str(tmp_path / "gone.py"), "No such file or directory", built_in),
        ("identities", built_in),
        (write(tmp_path, "def get_reward(history): ...", "old.pyc"), built_in),
        (write(tmp_path, "def get_reward(:", "syntax.py"), "SyntaxError: invalid syntax"),
        (write(tmp_path, "import sys\nsys.exit(3)", "exits.py"), "SystemExit: 3"),
        (write(tmp_path, "get_reward = 1.5", "number.py"), "get_reward"),
        (write(tmp_path, "# coding: klingon", "coding.py"), "unknown encoding"),
    ):
        check_refusal(lambda _, name=name: rewards.load_plugin(name), [], (f"critic.reward_plugin={name}", *named))


def test_a_continued_run_needs_the_same_text(tmp_path: Path) -> None:
    """Wherever it lies."""
    names = [write(tmp_path, f"def get_reward(history): return {n}", f"{n}.py") for n in "ab"]
    one, other, own = map(rewards.load_plugin, (*names, "identity"))
    for now, before in ((one, one), (own, own), (one._replace(name="elsewhere.py"), one)):
        assert rewards.described(before) == {"name": before.name, "sha256": before.sha256, "text": before.text}
        rewards.check_plugin(now, json.loads(json.dumps(rewards.described(before))), tmp_path)
    changed = rewards.load_plugin(write(tmp_path, "def get_reward(history): return 0", "a.py"))
    for now, before in ((other, one), (changed, one), (own, one), (one, own)):
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
