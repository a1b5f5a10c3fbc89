"""Reward plug-ins: what is built in against loops over single numbers, and what is refused."""

import hashlib
import itertools
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lives import NUM_ROWS, PER_TASK, TRAIN, histories_of, random_done

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.contracts import ConfigError, EnvSpec
from icrl.data.history_store import Histories
from icrl.data.rewards import BUILT_IN, History, check_plugin, described, load_plugin, training_rewards
from icrl.envs import make_env

SPEC = EnvSpec(num_obs=12, num_actions=5, reward_values=(-0.5, 0.0, 1.0), width=3, max_episode_steps=4)
GOALS = [[10 * task] for task in range(9)]  # of the rows of tests/data/lives.py: any numbers
steps_of = st.lists(st.tuples(st.sampled_from([-0.5, 0.0, 1.0]), st.booleans(), st.booleans()), min_size=1, max_size=20)


def history(
    reward: list[float],
    done: list[bool] | None = None,
    cells: list[tuple[int, int]] | None = None,
    truncated: list[bool] | None = None,
    goal: int = 0,
    world: str = "dark_room",
    spec: EnvSpec = SPEC,
) -> History:
    """A life with these rewards, ends and moves."""
    num_steps = len(reward)
    terminated, cut = (np.array(ends or [False] * num_steps) for ends in (done, truncated))
    before, after = np.array(cells or [(0, 0)] * num_steps).T
    episode, ended = [], 0
    for step in range(num_steps):
        episode.append(ended)
        ended += int(terminated[step] or cut[step])
    nothing = np.zeros(num_steps, np.int64)
    floats = np.array(reward, np.float32)
    columns = (before, nothing, floats, after, nothing, terminated, cut, np.array(episode), np.array([goal, 5]))
    return History(*columns, spec=spec, world=world)


def stored(done: np.ndarray, reward: np.ndarray | None = None) -> Histories:
    """The lives of `lives.py` with a table of tasks, in a bandit."""
    lives = histories_of(done, reward)
    lives.manifest["tasks"] = {"train": TRAIN, "all": GOALS}
    lives.manifest["config"] = {"env": {"name": "bandit"}}
    return lives


def write(folder: Path, text: str, name: str = "plugin.py") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def returning(folder: Path, expression: str) -> str:
    return write(folder, f"import numpy as np\n\n\ndef get_reward(history):\n    return {expression}\n")


def refused(plugin: str) -> str:
    """What is said of a plug-in that loads and then does something wrong."""
    with pytest.raises(ConfigError) as error:
        training_rewards(load_plugin(plugin), stored(random_done(6)), [3, 5], 6)
    assert str(error.value).startswith(f"critic.reward_plugin={plugin}: get_reward ")
    return str(error.value).removeprefix(f"critic.reward_plugin={plugin}: get_reward ")


def test_identity_and_step_penalty() -> None:
    life = history([-0.5, 0.0, 1.0])
    assert BUILT_IN["identity"](life).tolist() == [-0.5, 0, 1]
    assert BUILT_IN["step_penalty"](life).tolist() == [-0.75, -0.25, 0.75]


@settings(max_examples=100, deadline=None)
@given(steps=steps_of)
def test_improvement_over_the_best_so_far(steps: list[tuple[float, bool, bool]]) -> None:
    reward, terminated, truncated = (list(column) for column in zip(*steps, strict=True))
    expected, best, total = [], 0.0, 0.0
    for value, ends, is_cut in steps:
        total += value
        expected.append(max(0.0, total - best) if ends or is_cut else 0.0)
        if ends or is_cut:
            best, total = max(best, total), 0.0
    found = BUILT_IN["improvement"](history(reward, terminated, truncated=truncated))
    assert found.dtype == np.float32
    assert found.tolist() == expected
    assert found.sum() == best


def test_improvement_by_hand() -> None:
    """Returns 1, 0.5, 3, and one that is not seen to its end."""
    reward = [0, 1, 0.5, 0, 1, 1, 1, 9]
    done = [False, True, False, True, False, False, True, False]
    assert BUILT_IN["improvement"](history(reward, done)).tolist() == [0, 1, 0, 0, 0, 0, 2, 0]
    assert not BUILT_IN["improvement"](history([1.0, 1.0])).any()


def test_distance_by_hand() -> None:
    """A room of 3 x 3, goal in the corner 8: from 0 (4 moves away) to 1 (3), 1 to 1, 1 to 4 (2), 4 to 3 (3), 5 to 8."""
    life = history([0, 0, 0, 0, 1], cells=[(0, 1), (1, 1), (1, 4), (4, 3), (5, 8)], goal=8)
    found = BUILT_IN["distance"](life)
    assert found.dtype == np.float32
    assert found.tolist() == [0.25, 0, 0.25, -0.25, 1.25]


@settings(max_examples=100, deadline=None)
@given(
    width=st.integers(2, 7),
    numbers=st.lists(st.integers(0, 10**6), min_size=2, max_size=12),
    reward=st.sampled_from([0.0, 1.0]),
)
def test_distance_telescopes_over_an_episode(width: int, numbers: list[int], reward: float) -> None:
    """Whatever the way, what is added is the part of the room's largest distance that was gained in the end."""
    goal, *walk = (number % width**2 for number in [numbers[0], 0, *numbers[1:]])
    cells = list(itertools.pairwise(walk))
    spec = SPEC._replace(width=width, num_obs=width**2)
    found = BUILT_IN["distance"](history([reward] * len(cells), cells=cells, goal=goal, spec=spec))

    def away(cell: int) -> int:
        return abs(cell // width - goal // width) + abs(cell % width - goal % width)

    gained = (away(walk[0]) - away(walk[-1])) / (2 * width - 2)
    assert float(found.sum()) == pytest.approx(reward * len(cells) + gained, abs=1e-5)


@pytest.mark.parametrize("permuted", [False, True])
def test_each_move_of_a_shortest_way_earns_the_same_in_real_rooms(permuted: bool) -> None:
    config = load_config(["env.size=4", f"env.permute_actions={str(permuted).lower()}", "env.random_start=true"])
    env = make_env(config.env)
    tasks = env.all_tasks()[::7]
    state, step = env.reset(tasks, torch.arange(len(tasks)))
    for _ in range(3):
        action = env.optimal_action(state)
        old, away = step.obs, state.state_index != tasks[:, 0]
        state, step = env.step(state, action)
        for stream in range(len(tasks)):
            if not away[stream]:  # it stays where it is
                continue
            moved = (int(old[stream]), int(step.final_obs[stream]))
            life = history([0.0], cells=[moved], spec=env.spec)._replace(task=tasks[stream].numpy())
            assert BUILT_IN["distance"](life)[0] == pytest.approx(1 / 6)


@pytest.mark.parametrize("world", ["dark_key_to_door", "bandit", "gymnasium"])
def test_distance_is_refused_where_no_task_is_a_goal(world: str) -> None:
    lives = stored(random_done(6))
    lives.manifest["config"]["env"]["name"] = world
    with pytest.raises(ConfigError, match=rf"^critic\.reward_plugin=distance: env\.name={world} has no goal's cell"):
        training_rewards(load_plugin("distance"), lives, [0], 6)


@settings(max_examples=25, deadline=None)
@given(
    num_steps=st.integers(1, 12), shown=st.integers(1, 15), seed=st.integers(0, 99), row=st.integers(0, NUM_ROWS - 1)
)
def test_a_plugin_is_given_the_first_steps_of_each_life(num_steps: int, shown: int, seed: int, row: int) -> None:
    done, kept = random_done(num_steps, seed), min(num_steps, shown)
    lives = stored(done, reward=~done)
    lives = replace(lives, columns=lives.columns | {"next_obs": lives.columns["obs"] + 1})
    given_lives = []

    def look(life: History) -> np.ndarray:
        given_lives.append(life)
        return life.reward

    training_rewards(load_plugin("identity")._replace(get_reward=look), lives, [row], shown)
    (life,) = given_lives
    assert life.obs.tolist() == [row] * kept
    assert life.next_obs.tolist() == [row + 1] * kept
    assert life.timestep.tolist() == list(range(kept))
    assert life.action.tolist() == [step % 5 for step in range(kept)]
    assert life.reward.tolist() == [0 if ends else 1 for ends in done[row, :kept]]
    terminated, truncated = (life.terminated, life.truncated) if row % 2 == 0 else (life.truncated, life.terminated)
    assert terminated.tolist() == done[row, :kept].tolist() and not truncated.any()
    assert life.episode.tolist() == [int(done[row, :step].sum()) for step in range(kept)]
    assert life.task.tolist() == GOALS[TRAIN[row // PER_TASK]]
    assert life.spec == lives.spec and life.world == "bandit"
    integers = (life.obs, life.action, life.next_obs, life.timestep, life.episode, life.task)
    assert [column.dtype for column in integers] == [np.int64] * 6
    assert life.reward.dtype == np.float32 and life.terminated.dtype == life.truncated.dtype == bool


def test_rows_come_in_the_order_asked_for_and_rewards_are_values(tmp_path: Path) -> None:
    done = random_done(10)
    reward = np.arange(10)[None] % 2 + np.zeros((NUM_ROWS, 1))
    lives = stored(done, reward)
    lives.manifest["env"]["reward_values"] = [-0.5, 2.0]
    found = training_rewards(load_plugin("identity"), lives, np.array([5, 2]), 4)
    assert found.dtype == np.float32
    assert found.tolist() == [[-0.5, 2, -0.5, 2]] * 2
    numbers = load_plugin(returning(tmp_path, "(history.obs + history.timestep / 100).astype(np.float32)"))
    assert training_rewards(numbers, lives, [5, 2], 3) == pytest.approx(np.array([[5, 5.01, 5.02], [2, 2.01, 2.02]]))


@pytest.mark.parametrize("name", [field for field in History._fields if field not in ("spec", "world")])
def test_a_plugin_cannot_write_into_what_it_is_given(tmp_path: Path, name: str) -> None:
    plugin = write(tmp_path, f"def get_reward(history):\n    history.{name}[0] = 1\n    return history.reward\n")
    lives = stored(random_done(6))
    before = {column: array.copy() for column, array in lives.columns.items()}
    with pytest.raises(ConfigError, match=r"raises ValueError: assignment destination is read-only, in row 2 of codes"):
        training_rewards(load_plugin(plugin), lives, [2], 6)
    assert all(np.array_equal(lives.columns[column], before[column]) for column in before)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("list(history.reward)", "returns list, not a NumPy array"),
        ("None", "returns NoneType, not a NumPy array"),
        ("np.float32(0)", "returns float32, not a NumPy array"),
        ("history.reward[1:]", "returns an array of shape (5,), not (6,): one number for each step"),
        ("history.reward[:, None]", "returns an array of shape (6, 1), not (6,): one number for each step"),
        ("history.reward[:1]", "returns an array of shape (1,), not (6,): one number for each step"),
        ("history.reward.astype(np.float64)", "returns float64, not float32"),
        ("history.action", "returns int64, not float32"),
        ("np.float32([0, 1, 2, np.nan, 4, np.inf])", "returns nan at step 3"),
        ("np.float32([0, -np.inf, 2, np.nan, 4, 5])", "returns -inf at step 1"),
        ("history.rewards", "raises AttributeError: 'History' object has no attribute 'rewards'"),
        ("1 / 0", "raises ZeroDivisionError: division by zero"),
    ],
)
def test_wrong_rewards_are_refused(tmp_path: Path, expression: str, said: str) -> None:
    assert refused(returning(tmp_path, expression)) == f"{said}, in row 3 of codes"


def test_a_function_of_other_arguments_is_refused(tmp_path: Path) -> None:
    said = refused(write(tmp_path, "def get_reward(obs, action):\n    return obs\n"))
    assert said == "raises TypeError: get_reward() missing 1 required positional argument: 'action', in row 3 of codes"


def test_a_file_is_loaded_with_its_text_and_leaves_nothing_behind(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "import math  # ä\n\n\ndef get_reward(history):\n    return history.reward + math.floor(1.5)\n"
    write(tmp_path, text)
    before, path = set(sys.modules), list(sys.path)
    plugin = load_plugin("plugin.py")
    assert set(sys.modules) == before and sys.path == path
    assert "get_reward" not in globals() and os.listdir(tmp_path) == ["plugin.py"]
    assert plugin.name == "plugin.py" and plugin.text == text
    assert plugin.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert training_rewards(plugin, stored(random_done(3)), [0], 3).tolist() == [[1, 1, 1]]


def test_files_of_one_name_do_not_mix(tmp_path: Path) -> None:
    plugins = []
    for number in (1, 2):
        (folder := tmp_path / str(number)).mkdir()
        text = (
            f"import numpy as np\nN = np.float32({number})\ndef get_reward(history):\n    return N + history.reward\n"
        )
        plugins.append(load_plugin(write(folder, text)))
    lives = stored(random_done(2))
    assert [training_rewards(plugin, lives, [0], 2).tolist() for plugin in plugins] == [[[1, 1]], [[2, 2]]]


def test_what_runs_is_the_text_that_is_there_now(tmp_path: Path, monkeypatch) -> None:
    """Another text of the same length at the same time: a compiled file would pass for it."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for number in (1, 2):
        name = write(
            tmp_path, f"def get_reward(history):\n    return history.reward + history.reward.dtype.type({number})"
        )
        os.utime(name, (10**9, 10**9))
        assert training_rewards(load_plugin(name), stored(random_done(1)), [0], 1).tolist() == [[number]]


def test_files_that_are_no_plugins_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    cases = {
        str(tmp_path / "gone.py"): "does not exist; must be one of identity, step_penalty, distance, improvement, or",
        "identities": "does not exist; must be one of",
        str(tmp_path / "folder.py"): "is not a file; must be one of",
        write(tmp_path, "x", "notes.txt"): "is no Python file; must be one of",
        write(tmp_path, "def get_reward(history): ...", "old.pyc"): "is no Python file; must be one of",
        "a" * 300 + ".py": "cannot be read: File name too long",
        write(tmp_path, "1 / 0", "divides.py"): "raises ZeroDivisionError: division by zero",
        write(tmp_path, "def get_reward(:", "syntax.py"): "raises SyntaxError: invalid syntax",
        write(tmp_path, "import sys\nsys.exit(3)", "exits.py"): "raises SystemExit: 3",
        write(tmp_path, "import no_such_module", "imports.py"): "raises ModuleNotFoundError: No module named",
        write(tmp_path, "def reward(history): ...", "other.py"): "defines no get_reward",
        write(tmp_path, "get_reward = 1.5", "number.py"): "get_reward is not callable but float",
    }
    before = set(sys.modules)
    for name, said in cases.items():
        with pytest.raises(ConfigError) as error:
            load_plugin(name)
        assert str(error.value).startswith(f"critic.reward_plugin={name}: {said}")
    assert set(sys.modules) == before


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"bytes\.py: raises \w+Error"):
        load_plugin(str(tmp_path / "bytes.py"))


def test_a_continued_run_needs_the_same_text(tmp_path: Path) -> None:
    names = [write(tmp_path, f"def get_reward(history): return {n}", f"{n}.py") for n in "ab"]
    one, other, moved, own = *map(load_plugin, names), load_plugin(names[0]), load_plugin("identity")
    for plugin in (one, own):
        assert described(plugin) == {"name": plugin.name, "sha256": plugin.sha256, "text": plugin.text}
        check_plugin(plugin, json.loads(json.dumps(described(plugin))), tmp_path)
    check_plugin(moved._replace(name="elsewhere.py"), described(one), tmp_path)
    with pytest.raises(ConfigError) as error:
        check_plugin(other, described(one), tmp_path)
    assert str(error.value) == (
        f"{tmp_path} was made with critic.reward_plugin={names[0]} (sha256 {one.sha256[:12]}), and this configuration "
        f"gives critic.reward_plugin={names[1]} (sha256 {other.sha256[:12]}): give that here too, or another name="
    )
    changed = load_plugin(write(tmp_path, "def get_reward(history): return 0", "a.py"))
    for now, before in ((changed, one), (own, one), (one, own), (own, load_plugin("distance"))):
        with pytest.raises(ConfigError, match="was made with critic.reward_plugin="):
            check_plugin(now, described(before), tmp_path)
    with pytest.raises(ConfigError, match=r"distance \(built in\), .*=identity \(built in\)"):
        check_plugin(own, described(load_plugin("distance")), tmp_path)
