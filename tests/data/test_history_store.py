"""The history store: what goes in comes out, an interrupted writer goes on, and nothing that is not whole is opened."""

import itertools
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import icrl.runs.files
from icrl.contracts import EnvSpec, PipelineError, Rollout
from icrl.data.history_store import (
    DamagedHistoriesError,
    Histories,
    HistoryWriter,
    column_dtypes,
    open_histories,
    read_manifest,
)
from icrl.runs.files import read_json, write_json

SPEC = EnvSpec(num_obs=81, num_actions=5, reward_values=(-0.25, 0.0, 1.0), width=9, max_episode_steps=20)
TASKS = {"all": [[3], [7], [9]], "seed": 0, "train": [2, 0], "held_out": [1]}
ROWS = {"num_learners": 2, "num_envs": 3}
NUM_ROWS, NUM_STEPS = 12, 30
COLUMNS = Rollout._fields


def life(num_steps: int = NUM_STEPS, spec: EnvSpec = SPEC, num_rows: int = NUM_ROWS, seed: int = 0) -> Rollout:
    """Transitions `[T, rows]` that use every column's whole range."""
    generator = torch.Generator().manual_seed(seed)
    high = {
        "obs": spec.num_obs,
        "next_obs": spec.num_obs,
        "action": spec.num_actions,
        "optimal_action": spec.num_actions + 1,  # the last: unknown
        "reward": spec.num_rewards,
        "timestep": spec.max_episode_steps,
        "terminated": 2,
        "truncated": 2,
    }
    columns = {name: torch.randint(high[name], (num_steps, num_rows), generator=generator) for name in COLUMNS}
    for name, column in columns.items():
        column[0, 0] = high[name] - 1
    columns |= {name: columns[name].bool() for name in ("terminated", "truncated")}
    return Rollout(**columns)


def writer_of(folder: Path, num_steps: int = NUM_STEPS, spec: EnvSpec = SPEC) -> HistoryWriter:
    return HistoryWriter(folder, spec, num_steps, TASKS, ROWS, {"seed": 0})


def steps(rollout: Rollout, start: int, stop: int) -> Rollout:
    return Rollout(*(column[start:stop] for column in rollout))


def write(folder: Path, lived: Rollout, spec: EnvSpec = SPEC) -> None:
    writer = writer_of(folder, len(lived.obs), spec)
    writer.add(lived)
    writer.commit(0)
    writer.finish()


def assert_holds(histories: Histories, lived: Rollout) -> None:
    for name in COLUMNS:
        assert np.array_equal(histories.columns[name], getattr(lived, name).T.numpy()), name


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("histories") / "whole"
    write(folder, life())
    return folder


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def test_round_trip_by_blocks_of_any_length(tmp_path: Path) -> None:
    lived, writer = life(), writer_of(tmp_path)
    edges = [0, 4, 5, 12, 30]
    for start, stop in itertools.pairwise(edges):
        writer.add(steps(lived, start, stop))
        if stop != 5:  # two additions in one block
            writer.commit(4 if stop == 12 else start)
    writer.finish()
    histories = open_histories(tmp_path)
    assert_holds(histories, lived)
    assert histories.spec == SPEC
    assert histories.row_tasks.tolist() == [2] * 6 + [0] * 6
    assert histories.manifest["tasks"] == TASKS and histories.manifest["config"] == {"seed": 0}
    assert histories.manifest["committed"] == NUM_STEPS


def test_the_checksum_is_of_the_lives_and_not_of_where_they_are(whole: Path, tmp_path: Path) -> None:
    def checksum(name: str, lived: Rollout, tasks: dict = TASKS, rows: dict = ROWS, seed: int = 0) -> str:
        writer = HistoryWriter(tmp_path / name, SPEC, len(lived.obs), tasks, rows, {"seed": seed})
        writer.add(lived)
        writer.commit(0)
        writer.finish()
        return open_histories(tmp_path / name).checksum

    lived, changed = life(), life()
    changed.action[7, 3] = (changed.action[7, 3] + 1) % SPEC.num_actions
    same = open_histories(whole).checksum
    assert checksum("same", lived) == checksum("other options", lived, seed=1) == same
    others = [
        checksum("a step", changed),
        checksum("length", steps(lived, 0, 29)),
        checksum("tasks", lived, TASKS | {"train": [0, 2]}),
        checksum("rows", lived, rows={"num_learners": 3, "num_envs": 2}),
    ]
    assert len({same, *others}) == 5


def test_columns_are_read_only(whole: Path) -> None:
    with pytest.raises(ValueError, match="read-only"):
        open_histories(whole).columns["obs"][0, 0] = 1


@pytest.mark.parametrize(
    ("size", "dtype"), [(9, "uint8"), (16, "uint8"), (17, "uint16")], ids=["9x9", "256 cells", "289 cells"]
)
def test_dtypes_are_the_smallest_that_hold_the_room(tmp_path: Path, size: int, dtype: str) -> None:
    spec = SPEC._replace(num_obs=size * size, width=size)
    assert column_dtypes(spec) == dict.fromkeys(COLUMNS, "uint8") | {"obs": dtype, "next_obs": dtype}
    lived = life(10, spec)
    write(tmp_path, lived, spec)
    histories = open_histories(tmp_path)
    assert_holds(histories, lived)
    for name, expected in column_dtypes(spec).items():
        assert histories.columns[name].dtype == expected
        size_on_disk = (tmp_path / f"{name}.npy").stat().st_size
        assert 0 < size_on_disk - NUM_ROWS * 10 * np.dtype(expected).itemsize < 256  # the header


@pytest.mark.parametrize(
    ("changed", "wide"),
    [
        ({"num_actions": 255}, set()),
        ({"num_actions": 256}, {"optimal_action"}),  # 256 says that it is unknown
        ({"num_actions": 257}, {"action", "optimal_action"}),
        ({"reward_values": tuple(map(float, range(256)))}, set()),
        ({"reward_values": tuple(map(float, range(257)))}, {"reward"}),
        ({"max_episode_steps": 256}, set()),
        ({"max_episode_steps": 257}, {"timestep"}),
    ],
)
def test_dtypes_are_the_smallest_that_hold_every_value(changed: dict, wide: set[str]) -> None:
    dtypes = column_dtypes(SPEC._replace(**changed))
    assert dtypes == {name: "uint16" if name in wide else "uint8" for name in COLUMNS}


def test_what_is_committed_is_on_disk_and_the_rest_in_memory(tmp_path: Path) -> None:
    """Read while the writer is at work: nothing beyond `committed` is promised, all before it is there."""
    lived, writer = life(), writer_of(tmp_path)
    assert read_manifest(tmp_path)["committed"] == 0
    assert (tmp_path / "obs.npy").stat().st_size > NUM_ROWS * NUM_STEPS  # the space is taken from the start
    writer.add(steps(lived, 0, 10))
    assert read_manifest(tmp_path)["committed"] == 0
    writer.commit(0)
    writer.add(steps(lived, 10, 20))
    assert read_manifest(tmp_path)["committed"] == 10
    found = np.load(tmp_path / "obs.npy")
    assert np.array_equal(found[:, :10], lived.obs[:10].T) and not found[:, 10:].any()


def test_steps_after_the_end_are_dropped(tmp_path: Path) -> None:
    lived, writer = life(50), writer_of(tmp_path)
    for start in (0, 25, 35):  # the second block crosses the end, the third is after it
        writer.add(steps(lived, start, min(start + 25, 50)))
        writer.commit(start)
    writer.finish()
    assert_holds(open_histories(tmp_path), steps(lived, 0, NUM_STEPS))


@pytest.mark.parametrize("resumed_from", [0, 5, 12])
def test_an_interrupted_writer_goes_on(tmp_path: Path, resumed_from: int) -> None:
    """It committed 12 steps and has 8 more in memory when it dies; the run goes on from the checkpoint before."""
    lived, writer = life(), writer_of(tmp_path)
    writer.add(steps(lived, 0, 12))
    writer.commit(0)
    writer.add(steps(lived, 12, 20))
    del writer
    again = writer_of(tmp_path)
    assert again.manifest["committed"] == 12
    again.add(steps(lived, resumed_from, NUM_STEPS))
    again.commit(resumed_from)
    again.finish()
    assert_holds(open_histories(tmp_path), lived)


@settings(deadline=None, max_examples=25)
@given(
    edges=st.sets(st.integers(1, NUM_STEPS - 1), max_size=4),
    resumed_from=st.integers(0, NUM_STEPS),
    name=st.sampled_from(COLUMNS),
    row=st.integers(0, NUM_ROWS - 1),
    step=st.integers(0, NUM_STEPS - 1),
    complete=st.booleans(),
)
def test_a_changed_step_is_noticed_before_a_run_goes_on(
    tmp_path_factory: pytest.TempPathFactory,
    edges: set[int],
    resumed_from: int,
    name: str,
    row: int,
    step: int,
    complete: bool,
) -> None:
    """A change in a block that a run goes on from is refused; what is written again anyway is healed."""
    folder, lived = tmp_path_factory.mktemp("histories"), life()
    writer, stops = writer_of(folder), [*sorted(edges), NUM_STEPS]
    for start, stop in itertools.pairwise([0, *stops]):
        writer.add(steps(lived, start, stop))
        writer.commit(start)
    if complete:
        writer.finish()
    column = np.load(folder / f"{name}.npy", mmap_mode="r+")
    column[row, step] ^= 1
    column.flush()
    again = writer_of(folder)
    start = max(edge for edge in [0, *stops] if edge <= step)  # of the block that was changed
    if complete or start < resumed_from:
        where = "" if complete else f" in the block of steps {start} to {min(e for e in stops if e > step) - 1}"
        with pytest.raises(DamagedHistoriesError, match=rf"{folder}/{name}\.npy is damaged{where}: "):
            again.keep(resumed_from)
        return
    again.keep(resumed_from)
    again.add(steps(lived, resumed_from, NUM_STEPS))
    again.commit(resumed_from)
    again.finish()
    assert_holds(open_histories(folder), lived)


@pytest.mark.parametrize("when", ["between commits", "after the last"])
def test_a_change_while_the_run_goes_on_is_noticed_at_its_end(tmp_path: Path, when: str) -> None:
    lived, writer = life(), writer_of(tmp_path)
    writer.add(steps(lived, 0, 12))
    writer.commit(0)
    if when == "after the last":
        writer.add(steps(lived, 12, NUM_STEPS))
        writer.commit(12)
    with (tmp_path / "reward.npy").open("r+b") as file:
        file.seek(-NUM_STEPS, os.SEEK_END)  # the first step of the last row
        file.write(b"\xff")
    if when != "after the last":
        writer.add(steps(lived, 12, NUM_STEPS))
        writer.commit(12)
    with pytest.raises(DamagedHistoriesError, match=r"reward\.npy is damaged in the block of steps 0 to "):
        writer.finish()
    with pytest.raises(PipelineError, match="not complete"):
        open_histories(tmp_path)


@pytest.mark.parametrize("cuts", [[30], [12, 30], [1, 2, 3, 30]])
def test_how_often_was_committed_leaves_no_trace(whole: Path, tmp_path: Path, cuts: list[int]) -> None:
    writer = writer_of(tmp_path)
    for start, stop in itertools.pairwise([0, *cuts]):
        writer.add(steps(life(), start, stop))
        writer.commit(start)
    writer.finish()
    assert read_json(tmp_path / "manifest.json") == read_json(whole / "manifest.json")


def test_histories_of_the_version_before_are_read_where_they_are_complete(copy: Path) -> None:
    def older(manifest: dict) -> None:
        del manifest["blocks"]
        manifest["schema_version"] = 2
        manifest["config"] = {"tasks": {"num_train": 2}, "source": {"name": "a2c"}}

    before = open_histories(copy).checksum
    rewrite(copy / "manifest.json", older)
    assert_holds(open_histories(copy), life())
    assert open_histories(copy).checksum == before
    assert open_histories(copy).manifest["config"] == {
        "tasks": {"split": "random", "held_out": [], "num_train": 2},
        "source": {"num_workers": 0, "name": "a2c"},
    }
    rewrite(copy / "manifest.json", lambda manifest: manifest.update(complete=False))
    with pytest.raises(DamagedHistoriesError, match=r"begun by version 0\.7 .* Remove the histories and the logs"):
        writer_of(copy)


def test_a_crash_before_the_manifest_starts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dying(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("icrl.data.history_store.write_json", dying)
        with pytest.raises(KeyboardInterrupt):
            writer_of(tmp_path)
    write(tmp_path, life())
    assert_holds(open_histories(tmp_path), life())


def test_a_full_disk_is_an_error_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(icrl.runs.files.os, "posix_fallocate", full)
    with pytest.raises(PipelineError, match=r"cannot reserve .* No space left on device"):
        writer_of(tmp_path)


def test_incomplete_histories_are_refused(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    writer.add(steps(life(), 0, 10))
    writer.commit(0)
    with pytest.raises(PipelineError, match=r"not complete \(10 of 30 steps\).*same options again") as refused:
        open_histories(tmp_path)
    assert str(tmp_path) in str(refused.value)


def test_no_histories_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"no histories in .*train_agents"):
        open_histories(tmp_path / "nowhere")


def flip_last_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def other_dtype(path: Path) -> None:
    np.save(path, np.load(path).astype(np.int16))


def other_shape(path: Path) -> None:
    np.save(path, np.load(path)[:, :-1])


def other_order(path: Path) -> None:
    np.save(path, np.asfortranarray(np.load(path)))


def objects(path: Path) -> None:
    np.save(path, np.load(path).astype(object), allow_pickle=True)


def cut_to(size: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, size if size >= 0 else path.stat().st_size + size)


def foreign(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def archive(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, obs=np.zeros((NUM_ROWS, NUM_STEPS), np.uint8))


DAMAGES = {
    "one bit flipped": flip_last_bit,
    "a byte more": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "a byte less": cut_to(-1),
    "cut in the header": cut_to(20),
    "cut to the magic": cut_to(6),
    "empty": cut_to(0),
    "gone": Path.unlink,
    "other dtype": other_dtype,
    "other shape": other_shape,
    "other order": other_order,
    "pickled objects": objects,
    "a pickle": foreign(pickle.dumps([1, 2, 3])),
    "text": foreign(b"hello"),
    "an archive": archive,
    "a bad header": foreign(b"\x93NUMPY\x01\x00\x10\x00{'descr': import}"),
}


@pytest.mark.parametrize("name", ["obs", "truncated"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_column_is_refused_by_name(copy: Path, damage: str, name: str) -> None:
    DAMAGES[damage](copy / f"{name}.npy")
    with pytest.raises(DamagedHistoriesError, match=f"{copy}/{name}.npy"):
        open_histories(copy)


def test_pickled_objects_are_not_unpickled(copy: Path, tmp_path: Path) -> None:
    class Exploit:
        def __reduce__(self) -> tuple:
            return (Path.touch, (tmp_path / "harm",))

    np.save(copy / "obs.npy", np.array([[Exploit()]], dtype=object), allow_pickle=True)
    with pytest.raises(DamagedHistoriesError, match=r"obs\.npy"):
        open_histories(copy)
    assert not (tmp_path / "harm").exists()


def rewrite(path: Path, change: Callable[[dict], object], *, sealed: bool = True) -> None:
    """Change a manifest, and its checksum too if it is to be `sealed`."""
    manifest = read_json(path) if sealed else json.loads(path.read_text())
    change(manifest)
    write_json(path, manifest) if sealed else path.write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"3", b"{}", b'{"schema_version": 1}', b"\xff", b'{"name": "someone else\'s manifest"}'],
)
def test_a_foreign_or_cut_manifest_is_refused_by_name(copy: Path, content: bytes) -> None:
    (copy / "manifest.json").write_bytes(content)
    with pytest.raises(DamagedHistoriesError, match=f"{copy}/manifest.json"):
        open_histories(copy)


def test_a_manifest_cut_anywhere_is_refused(copy: Path) -> None:
    path = copy / "manifest.json"
    content = path.read_bytes()
    for size in range(0, len(content) - 2, 97):
        path.write_bytes(content[:size])
        with pytest.raises(DamagedHistoriesError, match=r"manifest\.json"):
            open_histories(copy)


FORMS: dict[str, Callable[[dict], object]] = {
    "an older version": lambda m: m.update(schema_version=1),
    "a key more": lambda m: m.update(extra=1),
    "a key less": lambda m: m.pop("env"),
    "a column less": lambda m: m["columns"].pop("obs"),
    "a column more": lambda m: m["columns"].update(extra=m["columns"]["obs"]),
    "columns without details": lambda m: m.update(columns=list(m["columns"])),
    "columns of no kind": lambda m: m.update(columns=None),
    "a column's details of no kind": lambda m: m["columns"].update(obs=3),
    "tasks of no kind": lambda m: m.update(tasks=[]),
    "a number of rows that is a text": lambda m: m["rows"].update(num_envs="3"),
    "other rows than there are": lambda m: m["rows"].update(num_learners=3),
    "incomplete without blocks": lambda m: m.update(complete=False),
}
CHANGES = FORMS | {
    "other tasks": lambda m: m["tasks"]["train"].reverse(),
    "other rows": lambda m: m["rows"].update(num_learners=3),
    "another room": lambda m: m["env"].update(num_obs=9),
    "another configuration": lambda m: m["config"].update(seed=1),
    "more committed": lambda m: m.update(committed=31),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_manifest_is_refused(copy: Path, change: str) -> None:
    rewrite(copy / "manifest.json", CHANGES[change], sealed=False)
    with pytest.raises(DamagedHistoriesError, match=r"manifest\.json is damaged"):
        open_histories(copy)


@pytest.mark.parametrize("form", FORMS)
def test_a_manifest_of_another_form_is_refused(copy: Path, form: str) -> None:
    rewrite(copy / "manifest.json", FORMS[form])
    with pytest.raises(DamagedHistoriesError, match=str(copy)):
        open_histories(copy)


def test_a_writer_refuses_what_is_not_whole_too(copy: Path) -> None:
    cut_to(-1)(copy / "reward.npy")
    with pytest.raises(DamagedHistoriesError, match=r"reward\.npy"):
        writer_of(copy)


def histories_of(spec: EnvSpec, columns: dict[str, np.ndarray], num_learners: int, num_envs: int) -> Histories:
    """Histories of `columns` `[rows, steps]`; those that are not given are 0."""
    whole = {name: columns.get(name, np.zeros_like(columns["reward"])).astype(np.uint8) for name in COLUMNS}
    num_tasks = len(columns["reward"]) // (num_learners * num_envs)
    manifest = {
        "env": json.loads(json.dumps(spec._asdict())),
        "tasks": {"train": list(range(num_tasks))},
        "rows": {"num_learners": num_learners, "num_envs": num_envs},
    }
    return Histories(Path(), manifest, whole)


def success_in_loops(histories: Histories) -> list[list[float]]:
    """Walk each row through its whole life, and count the episodes that end in its last tenth."""
    columns, rows, spec = histories.columns, histories.manifest["rows"], histories.spec
    num_steps = columns["obs"].shape[1]
    result = []
    for task in range(len(histories.manifest["tasks"]["train"])):
        result.append([])
        for learner in range(rows["num_learners"]):
            won = ended = 0
            for env in range(rows["num_envs"]):
                row = (task * rows["num_learners"] + learner) * rows["num_envs"] + env
                success = False
                for t in range(num_steps):
                    step = {name: columns[name][row, t] for name in COLUMNS}
                    paid = spec.reward_values[step["reward"]] > 0
                    last = step["terminated"] or step["truncated"]
                    success |= {
                        "reward": paid,
                        "goal": paid and step["terminated"] == 1,
                        "end": step["terminated"] == 1,
                        "best_action": last and step["action"] == step["optimal_action"],
                    }[spec.success]
                    if last:
                        if t >= num_steps * 9 // 10:
                            won, ended = won + success, ended + 1
                        success = False
            result[-1].append(won / ended if ended else 0.0)
    return result


@settings(deadline=None, max_examples=60)
@given(
    num_steps=st.integers(1, 120),
    limit=st.integers(1, 30),
    rewarded=st.sampled_from([0.05, 0.4]),
    ended=st.sampled_from([0.0, 0.05, 0.4]),
    success=st.sampled_from(["reward", "goal", "end", "best_action"]),
    values=st.sampled_from([(0.0, 1.0), (1.0, 0.0), (-1.0, 2.0), (0.0, -1.0)]),
    seed=st.integers(0, 10**6),
)
def test_final_success_equals_loops(
    num_steps: int, limit: int, rewarded: float, ended: float, success: str, values: tuple[float, float], seed: int
) -> None:
    """Several rewards an episode, as in the classic variant, rewards that are none, episodes that began before the last
    tenth, and stretches in which no episode ends."""
    rng = np.random.default_rng(seed)
    shape = (12, num_steps)
    terminated, timestep = rng.random(shape) < ended, np.zeros(shape, int)
    for t in range(1, num_steps):
        over = terminated[:, t - 1] | (timestep[:, t - 1] == limit - 1)
        timestep[:, t] = np.where(over, 0, timestep[:, t - 1] + 1)
    columns = {
        "reward": rng.random(shape) < rewarded,
        "terminated": terminated,
        "truncated": timestep == limit - 1,
        "timestep": timestep,
        "action": rng.integers(0, 3, shape),
        "optimal_action": rng.integers(0, 4, shape),
    }
    spec = SPEC._replace(num_actions=3, reward_values=values, max_episode_steps=limit, success=success)
    histories = histories_of(spec, columns, num_learners=2, num_envs=3)
    assert histories.final_success().tolist() == success_in_loops(histories)


def test_final_success_by_hand() -> None:
    """Two learners, one environment each, 100 steps of which the last ten count. The first wins an episode that began,
    and was won, before these, wins another with two rewards, loses one and has one open. The second ends none."""
    reward, done = np.zeros((2, 2, 100), np.uint8)
    done[0, [50, 79, 92, 95, 98]] = 1
    reward[0, [10, 50, 85, 94, 95, 99]] = 1
    done[1, [88, 89]] = reward[1, 88:] = 1
    spec = SPEC._replace(reward_values=(0.0, 1.0))
    timestep = np.zeros_like(done)
    for t in range(1, 100):
        timestep[:, t] = np.where(done[:, t - 1], 0, timestep[:, t - 1] + 1)
    columns = {"reward": reward, "terminated": done, "timestep": timestep}
    assert histories_of(spec, columns, num_learners=2, num_envs=1).final_success().tolist() == [[2 / 3, 0.0]]
