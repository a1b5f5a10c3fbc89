"""Tables of every kind of space through every file format and back, and layouts that other programs write."""

import itertools
import sys
import warnings
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete, MultiDiscrete
from harness import files_of
from refusals import check_refusal

from icrl.app.compose import compose_config
from icrl.contracts import ConfigError, PipelineError, Rollout
from icrl.extensions.formats.files import PACKAGES, READERS, WRITERS, Life, read_lives
from icrl.extensions.formats.imports import check_integers, checked, complete, evened, spec_of
from icrl.extensions.formats.options import ImportConfig
from icrl.extensions.formats.programs import import_histories
from icrl.spaces import EnvSpec

N, T, HORIZON = 3, 12, 4
COLUMNS = {  # observations and actions of a step
    "integers": (lambda g: g.integers(0, 9, (N, T + 1)), lambda g: g.integers(0, 3, (N, T))),
    "many integers": (lambda g: g.integers(0, 5, (N, T + 1, 3)), lambda g: g.integers(0, 2, (N, T, 2))),
    "vectors": (lambda g: g.normal(size=(N, T + 1, 3)), lambda g: g.uniform(-1, 1, (N, T, 2))),
    "images": (lambda g: g.integers(0, 256, (N, T + 1, 4, 5, 3)).astype(np.uint8), lambda g: g.integers(0, 3, (N, T))),
}


def lives_of(kind: str) -> dict[str, np.ndarray]:
    """Columns `[N, T, ...]` of lives with episodes of 4 steps, as a world with these spaces would fill them."""
    g = np.random.default_rng(0)
    obs, action = (make(g) for make in COLUMNS[kind])
    obs, action = (each.astype(np.float32) if each.dtype.kind == "f" else each for each in (obs, action))
    timestep = np.tile(np.arange(T) % HORIZON, (N, 1))
    last = timestep == HORIZON - 1
    won = g.random((N, T)) < 0.5
    reward = g.choice([-0.1, 0.0, 1.0], (N, T))
    best = np.full_like(action, np.nan) if action.dtype.kind == "f" else action
    ends = {"terminated": last & won, "truncated": last & ~won}
    table = {"obs": obs[:, :T], "action": action, "reward": reward, "next_obs": obs[:, 1:], "timestep": timestep}
    return table | ends | {"optimal_action": best, "task": np.array([5, 2, 7])}


def stored(form: str, path: Path, names: dict[str, str] | None = None) -> dict[str, np.ndarray]:
    """Columns `[N, T, ...]` of what a file holds, after all checks."""
    lives = read_lives(form, path, names or {})
    lives = [life._replace(columns=complete(life)) for life in lives]
    spec = spec_of([life.columns for life in lives])
    parts = [checked(life, spec, len(life.columns["reward"])) for life in lives]
    tasks = {"task": np.array([life.task for life in lives])}
    return tasks | {name: torch.stack([part[name] for part in parts]).numpy() for name in Rollout._fields}


def written(form: str, folder: Path, table: dict[str, np.ndarray]) -> Path:
    lives = read_npz(folder, table)
    names, write = WRITERS[form]
    for name, content in zip(names, write(table, spec_of(lives)), strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder / ("minari" if form == "minari" else names[0])


def read_npz(folder: Path, table: dict[str, np.ndarray]) -> list[Any]:
    np.savez(folder / "table.npz", **table)
    return [complete(life) for life in read_lives("npz", folder / "table.npz", {})]


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("form", READERS)
def test_every_format_gives_back_what_was_written(tmp_path, form, kind):
    if form in PACKAGES:
        pytest.importorskip(PACKAGES[form])
    table = lives_of(kind)
    found = stored(form, written(form, tmp_path, table))
    for name, column in table.items():
        np.testing.assert_array_equal(found[name], column.astype(found[name].dtype), err_msg=name)
        assert found[name].shape == column.shape
    if (form, kind) == ("npz", "vectors"):  # floats of every size and order are stored in float32
        for dtype in ("<f2", ">f4", ">f8", np.longdouble):
            action = table["action"].astype(dtype)
            found = stored(form, written(form, tmp_path, table | {"action": action}))
            np.testing.assert_array_equal(found["action"], action.astype(np.float32))


def test_rewards_that_cannot_be_listed_stay_numbers(tmp_path):
    table = {name: np.concatenate([column] * 3) for name, column in lives_of("integers").items()}
    table["reward"] = np.random.default_rng(1).normal(size=table["reward"].shape).astype(np.float32)
    lives = read_npz(tmp_path, table)
    assert spec_of(lives).reward_values == () and spec_of(lives[:1]).reward_values != ()
    np.testing.assert_array_equal(stored("npz", tmp_path / "table.npz")["reward"], table["reward"])


def test_missing_columns_are_derived(tmp_path):
    """By hand: two episodes, the second one cut by the end of the row."""
    ends = [0, 0, 1, 0, 0]
    np.savez(tmp_path / "a.npz", obs=[3, 4, 5, 3, 4], action=[1, 1, 0, 1, 1], reward=ends, done=ends)
    (life,) = read_lives("npz", tmp_path / "a.npz", {})
    found = complete(life)
    assert found["timestep"].tolist() == [0, 1, 2, 0, 1] and not found["truncated"].any()
    assert found["next_obs"].tolist() == [4, 5, 5, 4, 4]  # the last one stays where the file does not say
    parts = checked(life._replace(columns=found), spec_of([found]), 5)
    assert parts["optimal_action"].tolist() == [2] * 5  # unknown


def test_integers_that_an_unknown_world_cannot_have_are_refused_by_their_place(tmp_path) -> None:
    np.savez(tmp_path / "a.npz", obs=[3, 4], action=[1, -1], reward=[0, 1], done=[0, 1])
    (life,) = read_lives("npz", tmp_path / "a.npz", {})
    with pytest.raises(ConfigError, match=r"a\.npz.*: column action, step 1: -1 must be from 0 to"):
        check_integers(life._replace(columns=complete(life)))


def test_best_integers_of_an_unknown_world_may_go_beyond_those_that_were_taken(tmp_path) -> None:
    """-1 and NaN are unknown, in whatever type the column has."""
    table = lives_of("integers")
    for best in (np.where(table["action"] > 0, 4, -1), np.where(table["action"] > 0, 4, np.nan)):
        found = stored("npz", written("npz", tmp_path, table | {"optimal_action": best}))
        spec = spec_of(read_npz(tmp_path, table | {"optimal_action": best}))
        assert spec.action_space == Discrete(5)
        np.testing.assert_array_equal(found["optimal_action"], np.where(table["action"] > 0, 4, 5))
    table["optimal_action"] = np.where(table["action"] > 0, 4, -2)
    (life, *_) = read_lives("npz", written("npz", tmp_path, table), {})
    with pytest.raises(ConfigError, match="column optimal_action, step .: -2 must be from 0 to"):
        check_integers(life)


@pytest.mark.parametrize("dtype", [np.float32, int])
def test_best_actions_of_an_unknown_world_may_go_beyond_those_that_were_taken(tmp_path, dtype):
    table = lives_of("vectors")
    best = np.where(table["action"] > 0, 2, -3).astype(dtype)
    if dtype is np.float32:
        best[1, 4] = np.nan
    found = stored("npz", written("npz", tmp_path, table | {"optimal_action": best}))
    np.testing.assert_array_equal(found["optimal_action"], best.astype(np.float32))
    space = spec_of(read_npz(tmp_path, table | {"optimal_action": best})).action_space
    assert space.low.tolist() == [-3, -3] and space.high.tolist() == [2, 2]


WRONG = {  # by what a message must say: a column, and what is wrong with it
    "column action has 11 steps, and reward has 12": ("action", lambda a: a[:, :-1]),
    "column obs, step 4: -1 must be in Discrete": ("obs", lambda a: put(a, (1, 4), -1)),
    "column reward, step 3: nan must be finite": ("reward", lambda a: put(a, (1, 3), np.nan)),
    "column timestep, step 0: 1 must count from 0": ("timestep", lambda a: a + 1),
    "column timestep, step 5: 0 must count from 0": ("timestep", lambda a: put(a, (1, 5), 0)),
    "column next_obs, step 1: 8 must be the next observation": ("next_obs", lambda a: put(a, (1, 1), 8)),
    "column terminated, step 1: 2 must be 0 or 1": ("terminated", lambda a: put(a.astype(int), (1, 1), 2)),
    "column action, step 7: 3 must be in Discrete(3)": ("action", lambda a: put(a, (1, 7), 3)),
    "column action, step 7: 0.5 must be in Discrete(3)": ("action", lambda a: put(a.astype(float), (1, 7), 0.5)),
    "column reward, step 4: 0.3 must be one of the rewards of this world": ("reward", lambda a: put(a, (1, 4), 0.3)),
    "lacks obs": ("obs", None),
}


def put(column: np.ndarray, where: tuple[int, int], value: float) -> np.ndarray:
    column = column.copy()
    column[where] = value
    return column


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_file_is_refused_with_place_column_and_step(tmp_path, message):
    table = lives_of("integers")
    table["obs"] = table["obs"].copy()
    table["obs"][:, 1:] = table["next_obs"][:, :-1]
    spec = spec_of(read_npz(tmp_path, table))
    name, change = WRONG[message]
    column = table.pop(name)
    table |= {name: change(column)} if change else {}
    np.savez(tmp_path / "wrong.npz", **table)
    with pytest.raises(ConfigError) as refused:
        for life in read_lives("npz", tmp_path / "wrong.npz", {}):
            checked(life._replace(columns=complete(life)), spec, T)
    assert message in str(refused.value) and "wrong.npz" in str(refused.value)


def filled(value: Any, dtype: Any = None) -> Callable[[np.ndarray], np.ndarray]:
    return lambda column: np.full(column.shape, value, dtype)


MALFORMED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "texts": filled("1"),
    "bytes": filled(b"1"),
    "decimals": filled(Decimal(1), object),
    "dates": filled(np.datetime64("2020-01-01")),
    "structures": filled(0, [("a", "<i4")]),
    "complex": filled(0, complex),
    "too large": filled(1e300),
    "infinite": filled(np.inf),
    "missing": filled(np.nan),
    "more axes": lambda column: column.reshape(*column.shape, 1, 1, 1, 1),
    "images": lambda column: np.zeros((*column.shape, 4, 4, 3), np.uint8),
    "empty": lambda column: column[..., None][..., :0],
    "one number": lambda column: np.array(0),
    "parts": filled(1.7),
    "truth": filled(True),
    "large integers": filled(2**63, np.uint64),
}
ALLOWED = {  # as they are the numbers 0, 1 or 1.7, unknown actions, or a column [rows, 1, ...] of tasks
    "obs": ("parts", "truth", "images", "large integers"),  # next_obs is at fault
    "action": ("parts", "truth"),
    "reward": ("parts", "truth", "large integers"),
    "optimal_action": ("truth", "missing"),
    "terminated": ("truth",),
    "truncated": ("truth",),
    "task": ("more axes",),
}
MINARI = {"obs": "observations", "action": "actions", "reward": "rewards"}
MINARI |= {"terminated": "terminations", "truncated": "truncations"}


def spoil(form: str, path: Path, table: dict[str, np.ndarray], name: str, column: np.ndarray) -> bool:
    """Put another column into the file that holds `table`; False if the format cannot hold it."""
    if form == "npz":
        np.savez(path, **table | {name: column})
    elif form == "parquet":
        import pyarrow as pa  # noqa: PLC0415 - optional
        from pyarrow import parquet  # noqa: PLC0415

        if not column.ndim or column.dtype.kind == "V":
            return False
        lines = np.repeat(column, T, axis=0) if name == "task" else column.reshape(N * T, *column.shape[2:])
        before = parquet.read_table(path)
        try:
            cells = pa.array(lines if lines.ndim == 1 else lines.tolist())
            made = before.set_column(before.column_names.index(name), name, cells)
        except (pa.ArrowException, TypeError):
            return False
        parquet.write_table(made, path)
    else:
        import h5py  # noqa: PLC0415

        rows = range(N) if form == "minari" else (...,)
        with h5py.File(path / "data/main_data.hdf5" if form == "minari" else path, "r+") as file:
            for row in rows:
                key = name if row is ... else f"episode_{row}/{MINARI.get(name, f'infos/{name}')}"
                new = column if row is ... or not column.ndim else column[row] if name != "task" else column[:1]
                try:
                    file["new"] = new.astype(object) if new.dtype.kind == "U" else new
                except TypeError:
                    return False
                del file[key]
                file.move("new", key)
    return True


@pytest.mark.parametrize("name", [*Rollout._fields, "task"])
@pytest.mark.parametrize("form", READERS)
def test_a_malformed_column_is_refused_with_its_name_and_nothing_is_written(tmp_path, form, name):
    if form in PACKAGES:
        pytest.importorskip(PACKAGES[form])
    table = lives_of("integers") | {"reward": np.ones((N, T))}
    table |= {"obs": np.zeros((N, T), int), "next_obs": np.zeros((N, T), int)}
    path = written(form, tmp_path, table)
    config = compose_config(ImportConfig, ["env=recorded", f"root={tmp_path}", f"path={path}", f"format={form}"])
    for kind, change in MALFORMED.items():
        if kind in ALLOWED.get(name, ()) or not spoil(form, path, table, name, change(table[name])):
            continue
        files = files_of(tmp_path)
        with pytest.raises(PipelineError) as refused:
            import_histories.main(config)
        message = str(refused.value)
        assert f"column {name}" in message or f"{path} cannot be read as {form}" in message, (kind, message)
        assert files_of(tmp_path) == files


def test_layouts_of_other_programs(tmp_path):
    """XLand: a group for each task, of many histories. Vintix: a file for each history, in parts along time."""
    h5py = pytest.importorskip("h5py")
    table = lives_of("vectors")
    done = table["terminated"] | table["truncated"]
    with h5py.File(tmp_path / "xland.hdf5", "w") as file:
        for task in range(12):  # more than ten, whose names are not in order as texts
            names = {"states": "obs", "actions": "action", "rewards": "reward", "expert_actions": "optimal_action"}
            for there, here in names.items():
                file[f"{task}/{there}"] = table[here] + task
            file[f"{task}/dones"] = done
    found = stored("hdf5", tmp_path / "xland.hdf5")
    assert found["task"].tolist() == np.repeat(np.arange(12), N).tolist()
    np.testing.assert_array_equal(found["obs"][2 * N + 1], (table["obs"] + 2)[1])
    np.testing.assert_array_equal(found["terminated"][1], done[1])
    folder = tmp_path / "vintix"
    folder.mkdir()
    for row in range(N):
        with h5py.File(folder / f"trajectory_{row}.h5", "w") as file:
            for part in range(T):
                group = file.create_group(str(part))
                for there, here in {"proprio_observation": "obs", "action": "action", "reward": "reward"}.items():
                    group[there] = table[here][row, part : part + 1]
                group["step_num"], group["done"] = table["timestep"][row, part : part + 1], done[row, part : part + 1]
    found = stored("hdf5", folder)
    assert found["task"].tolist() == [0, 1, 2]
    for name in ("obs", "action", "timestep"):
        np.testing.assert_array_equal(found[name], table[name])


def test_columns_by_other_names(tmp_path, capsys):
    table = lives_of("integers")
    np.savez(tmp_path / "b.npz", truncatd=table["truncated"], **{name: table[name] for name in _NEEDED})
    read_lives("npz", tmp_path / "b.npz", {})
    assert "column truncatd is not used; is it truncated? Then give columns={truncated: " in capsys.readouterr().out
    table["seen"] = table.pop("obs")
    np.savez(tmp_path / "a.npz", **table)
    np.testing.assert_array_equal(stored("npz", tmp_path / "a.npz", {"obs": "seen"})["obs"], table["seen"])
    with pytest.raises(ConfigError, match=r"columns=\{obs: saw\}: a\.npz has .*seen"):
        read_lives("npz", tmp_path / "a.npz", {"obs": "saw"})
    with pytest.raises(ConfigError, match="columns: o: must be among obs"):
        read_lives("npz", tmp_path / "a.npz", {"o": "seen"})


@pytest.mark.parametrize("names", [["done", "terminated", "truncated"], ["dones", "truncations"], ["timeouts", "done"]])
def test_a_time_limit_is_no_termination_whichever_names_a_file_has(tmp_path, names) -> None:
    """In any order of the columns; `done` stands for an end of either kind."""
    table = lives_of("integers")
    ended = table["terminated"] | table["truncated"]
    others = {name: table[name] for name in ("obs", "action", "reward", "task")}
    ends = {name: ended if "done" in name else table["truncated" if "t" in name[:3] else name] for name in names}
    ends |= {"terminated": table["terminated"]} if "terminated" in names else {}
    for columns in (ends | others, others | dict(reversed(ends.items()))):
        np.savez(tmp_path / "a.npz", **columns)
        found = stored("npz", tmp_path / "a.npz")
        for name in ("terminated", "truncated"):
            np.testing.assert_array_equal(found[name], table[name])


def test_a_file_of_d4rl(tmp_path) -> None:
    """One long life with further groups, and ends under names of its own."""
    h5py = pytest.importorskip("h5py")
    table = {name: column[0] for name, column in lives_of("vectors").items()}
    names = {"observations": "obs", "actions": "action", "rewards": "reward", "next_observations": "next_obs"}
    with h5py.File(tmp_path / "d4.hdf5", "w") as file:
        for there, here in (names | {"terminals": "terminated", "timeouts": "truncated"}).items():
            file[there] = table[here]
        file["infos/qpos"], file["metadata/seed"] = np.zeros((T, 2)), np.zeros(1)
    found = stored("hdf5", tmp_path / "d4.hdf5")
    for name in ("obs", "action", "next_obs", "terminated", "truncated"):
        np.testing.assert_array_equal(found[name][0], table[name])
    with h5py.File(tmp_path / "d4.hdf5", "a") as file:
        file.move("terminals", "stops")
    with pytest.raises(ConfigError, match=r"d4\.hdf5: lacks terminated; it has actions, .*stops, timeouts"):
        read_lives("hdf5", tmp_path / "d4.hdf5", {})


def test_groups_of_several_files_are_tasks_in_order(tmp_path) -> None:
    h5py = pytest.importorskip("h5py")
    table = lives_of("integers")
    for file_name in ("a10", "a2"):
        with h5py.File(tmp_path / f"{file_name}.hdf5", "w") as file:
            for group, name in itertools.product("01", _NEEDED):
                file[f"{group}/{name}"] = table[name]
    lives = read_lives("hdf5", tmp_path, {})
    assert [life.task for life in lives] == np.repeat(range(4), N).tolist()
    assert [life.place.split(",")[0] for life in lives] == ["a2.hdf5"] * 2 * N + ["a10.hdf5"] * 2 * N
    with h5py.File(tmp_path / "lives.hdf5", "w") as file:  # one in each group
        for row, name in itertools.product(range(N), _NEEDED):
            file[f"{row}/{name}"] = table[name][row]
        for row in range(N):
            file[f"{row}/task"] = 7 - row
    lives = read_lives("hdf5", tmp_path / "lives.hdf5", {})
    assert [life.task for life in lives] == [7 - row for row in range(N)]
    np.testing.assert_array_equal(lives[1].columns["obs"], table["obs"][1])
    (tmp_path / "lives.hdf5").unlink()
    with h5py.File(tmp_path / "a2.hdf5", "a") as file:
        file["0/task"] = table["task"]
    with pytest.raises(ConfigError, match=r"some rows have a task, but not \['a2.hdf5, group 1, row 0'\]"):
        read_lives("hdf5", tmp_path, {})


@pytest.mark.parametrize("last", [[4.0, 5.0, 6.0], None])
def test_lists_of_other_lengths_and_rows_without_a_number_are_refused(tmp_path, last) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = {"obs": [[1.0, 2.0], [3.0, 4.0]], "action": [0, 1], "reward": [0.0, 1.0], "terminated": [0, 1]}
    parquet.write_table(pa.table(table | {"row": [0, None]}), tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match="a.parquet: column row has lines without a number"):
        read_lives("parquet", tmp_path / "a.parquet", {})
    parquet.write_table(pa.table(table | {"obs": [[1.0, 2.0], last]}), tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match="a.parquet: column obs has lists of lengths .*; must be the same"):
        read_lives("parquet", tmp_path / "a.parquet", {})


def test_images_in_another_order_of_axes_are_refused(tmp_path) -> None:
    """Of the same size; flat ones fit."""
    table = lives_of("images")
    spec = spec_of(read_npz(tmp_path, table))
    for name, change in {"flat": lambda x: x.reshape(N, -1, 60), "turned": lambda x: np.moveaxis(x, -1, 2)}.items():
        new = table | {key: change(table[key]) for key in ("obs", "next_obs")}
        np.savez(tmp_path / "a.npz", **new)
        life = read_lives("npz", tmp_path / "a.npz", {})[0]
        life = life._replace(columns=complete(life))
        if name == "flat":
            np.testing.assert_array_equal(checked(life, spec, T)["obs"].numpy(), table["obs"][0])
        else:
            with pytest.raises(ConfigError, match=r"column obs has shape \(3, 4, 5\) in a step, not \(4, 5, 3\)"):
                checked(life, spec, T)


def test_infos_of_a_foreign_minari_data_set_are_left_alone(tmp_path, monkeypatch) -> None:
    """They belong to the step before. Folders are in the order of the numbers in their names."""
    minari, collector = pytest.importorskip("minari"), pytest.importorskip("minari.data_collector")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    rewards, spaces = np.arange(T, dtype=np.float32), {"action_space": Discrete(3), "observation_space": Discrete(9)}
    for number in (10, 2):
        ends = {"terminations": rewards > T - 2, "truncations": rewards < 0}
        steps = {"observations": np.zeros(T + 1, int), "actions": np.zeros(T, int), "rewards": rewards + number}
        infos = {"reward": np.full(T + 1, -9.0), "task": np.full(T + 1, number)}
        buffer = collector.EpisodeBuffer(id=0, infos=infos, **steps, **ends)
        with warnings.catch_warnings(action="ignore"):  # about authors and scores
            minari.create_dataset_from_buffers(f"house-{number}-v0", [buffer], **spaces)
    lives = read_lives("minari", tmp_path, {})
    assert [life.task for life in lives] == [2, 10]
    for life in lives:
        np.testing.assert_array_equal(life.columns["reward"], rewards + life.task)


def test_what_else_an_npz_has_is_not_read(tmp_path) -> None:
    np.savez(tmp_path / "a.npz", notes=np.array([{}]), **lives_of("integers"))
    assert len(read_lives("npz", tmp_path / "a.npz", {})) == N


def test_rows_are_made_even(tmp_path):
    """Task 1 has one life and task 0 two, of different lengths."""
    for name, (tasks, steps) in {"a": ([0, 1], 5), "b": ([0], 7)}.items():
        shape = (len(tasks), steps)
        np.savez(tmp_path / f"{name}.npz", task=tasks, **{key: np.zeros(shape, int) for key in _NEEDED})
    said: list[str] = []
    lives = read_lives("npz", tmp_path, {})
    kept, steps = evened(lives, [1, 0], said.append)
    assert [life.task for life in kept] == [1, 0] and steps == 5 and "1 rows of each task" in said[0]
    assert evened(lives[1:], [0, 1], said.append)[1] == 5 and "cut to 5 steps" in said[-1]


_NEEDED = ("obs", "action", "reward", "terminated")


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "a.npz", tmp_path / "empty"):
        check_refusal(lambda _, path=path: read_lives("npz", path, {}), [], (str(path),))
    np.savez(tmp_path / "a.npz", **{name: np.array([{}], dtype=object) for name in _NEEDED})
    with pytest.raises(PipelineError, match="cannot be read as npz"):
        read_lives("npz", tmp_path / "a.npz", {})
    (tmp_path / "a.csv").write_text("obs,action\n0,1\n")
    with pytest.raises(PipelineError, match="cannot be read as npz: .*not a zip file"):
        read_lives("npz", tmp_path / "a.csv", {})


def test_a_table_without_lines_has_no_histories(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({name: np.zeros(0) for name in _NEEDED}), tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match="has no histories in format=parquet"):
        read_lives("parquet", tmp_path / "a.parquet", {})


@pytest.mark.parametrize(("form", "name"), PACKAGES.items())
def test_an_extra_that_is_missing_is_named(tmp_path, monkeypatch, form, name):
    for module in (name, f"{name}.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    path = tmp_path / "data/data" if form == "minari" else tmp_path
    path.mkdir(parents=True, exist_ok=True)
    (tmp_path / f"a.{form}").write_bytes(b"")
    with pytest.raises(ConfigError, match=rf"format={form} needs the package {name}.*pip install"):
        read_lives(form, tmp_path / "data" if form == "minari" else tmp_path / f"a.{form}", {})


def test_an_action_that_is_not_legal_is_refused():
    spec = EnvSpec(MultiDiscrete([3, 2, 2]), Discrete(2), (0.0, 1.0), 0, 4, action_mask=True)
    obs, action = np.array([[0, 0, 1], [1, 1, 1], [2, 1, 0]]), np.array([1, 0, 0])
    ends = {"terminated": np.zeros(3, bool), "reward": np.ones(3)}
    checked(life := Life("a.npz", 0, complete(Life("a.npz", 0, ends | {"obs": obs, "action": action}))), spec, 3)
    with pytest.raises(ConfigError, match=r"a.npz: column action, step 0: 0 is not legal"):
        checked(life._replace(columns=life.columns | {"action": action * 0}), spec, 3)
