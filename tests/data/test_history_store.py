"""History store: round trips, crash safety, and refusal of every store that is not whole."""

import itertools
import json
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icrl.contracts import PipelineError, Rollout
from icrl.data.columns import column_forms
from icrl.data.history_store import DamagedHistoriesError, Histories, HistoryWriter, open_histories
from icrl.runs.files import read_json, write_json
from icrl.spaces import EnvSpec, discrete_spec

SPEC = discrete_spec(num_obs=81, num_actions=5, reward_values=(-0.25, 0.0, 1.0), width=9, max_episode_steps=20)
POINTS = discrete_spec(2**31, 4, (0.0, 1.0), 0, 20, "end", points=(5, 3))  # an observation is 22 numbers
TASKS = {"all": [[3], [7], [9]], "seed": 0, "train": [2, 0], "held_out": [1]}
ROWS = {"num_learners": 2, "num_envs": 3}
NUM_ROWS, NUM_STEPS = 12, 30
COLUMNS = Rollout._fields


def life(num_steps: int = NUM_STEPS, spec: EnvSpec = SPEC) -> Rollout:
    """Transitions `[T, rows]` that use the whole range of every column."""
    generator, columns, obs, action = torch.Generator().manual_seed(0), [], spec.num_obs, spec.num_actions
    highs = (obs, action, spec.num_rewards, obs, spec.max_episode_steps, 2, 2, action + 1)
    for name, high in zip(COLUMNS, highs, strict=True):
        shape = (num_steps, NUM_ROWS, *(spec.obs_shape if "obs" in name else ()))
        columns.append(torch.randint(high, shape, generator=generator))
        columns[-1].view(-1)[0] = high - 1
    lived = Rollout(*columns)
    ends = {"terminated": lived.terminated.bool(), "truncated": lived.truncated.bool()}
    return lived._replace(reward=spec.reward_of(lived.reward), **ends)


def writer_of(folder: Path, num_steps: int = NUM_STEPS, spec: EnvSpec = SPEC) -> HistoryWriter:
    return HistoryWriter(folder, spec, num_steps, TASKS, ROWS, {"seed": 0})


def steps(rollout: Rollout, start: int, stop: int) -> Rollout:
    return Rollout(*(column[start:stop] for column in rollout))


def write(writer: HistoryWriter, lived: Rollout, *cuts: int, finish: bool = True) -> None:
    """Add and commit `lived` in blocks that begin at `cuts`, then finish."""
    cuts = cuts or (0,)
    writer.keep(cuts[0])
    for start, stop in itertools.pairwise((*cuts, len(lived.obs))):
        writer.add(steps(lived, start, stop))
        writer.commit()
    if finish:
        writer.finish()


def assert_holds(histories: Histories, lived: Rollout) -> None:
    """The store holds `lived`, with rewards as their numbers among the world's."""
    for name in COLUMNS:
        expected, recorded = getattr(lived, name).transpose(0, 1).numpy(), histories.columns[name]
        if name == "reward":
            assert recorded.dtype.kind == "u" and np.array_equal(histories.rewards(), expected)
        else:
            assert np.array_equal(recorded, expected), name


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("histories") / "whole"
    write(writer_of(folder), life())
    return folder


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


@pytest.mark.parametrize(("spec", "shape"), [(SPEC, ()), (POINTS, (22,))], ids=["number", "22 numbers"])
def test_round_trip_by_blocks_of_any_length(tmp_path: Path, spec: EnvSpec, shape: tuple[int, ...]) -> None:
    """Steps beyond the end of the store are dropped, and the number of commits leaves no trace."""
    lived, writer = life(40, spec), writer_of(tmp_path / "blocks", spec=spec)
    write(writer, lived, 0, 4, 5, 12, 25, 35)
    histories = open_histories(str(tmp_path / "blocks"))  # as a text too
    assert_holds(histories, steps(lived, 0, NUM_STEPS))
    assert histories.spec == spec and histories.tasks == TASKS and histories.manifest["config"] == {"seed": 0}
    assert histories.row_tasks.tolist() == [2] * 6 + [0] * 6
    assert histories.columns["obs"].shape == (NUM_ROWS, NUM_STEPS, *shape)
    with pytest.raises(ValueError, match="read-only"):
        histories.columns["obs"][0, 0] = 1
    write(writer_of(tmp_path / "once", spec=spec), steps(lived, 0, NUM_STEPS))
    assert read_json(tmp_path / "once/manifest.json") == read_json(tmp_path / "blocks/manifest.json")


@pytest.mark.parametrize("resumed_from", [0, 5, 12])
def test_an_interrupted_writer_continues(tmp_path: Path, resumed_from: int) -> None:
    """12 steps are committed and 8 more in memory; the run resumes from the checkpoint before."""
    lived, writer = life(), writer_of(tmp_path)
    assert (tmp_path / "obs.npy").stat().st_size > NUM_ROWS * NUM_STEPS  # the space is reserved from the start
    writer.add(steps(lived, 0, 7))
    writer.add(steps(lived, 7, 12))
    writer.commit()
    writer.add(steps(lived, 12, 20))
    found = np.load(tmp_path / "obs.npy")
    assert np.array_equal(found[:, :12], lived.obs[:12].T) and not found[:, 12:].any()
    with pytest.raises(PipelineError, match=r"not complete \(12 of 30 steps\).*same options to continue"):
        open_histories(tmp_path)
    again = writer_of(tmp_path)
    assert again.manifest["committed"] == 12
    write(again, lived, resumed_from)
    assert_holds(open_histories(tmp_path), lived)


def test_a_writer_killed_before_it_says_what_it_wrote_anew_continues(tmp_path: Path, monkeypatch) -> None:
    """On another machine the steps after the checkpoint may come out otherwise."""
    lived = life()
    write(writer_of(tmp_path), lived, 0)
    writer = writer_of(tmp_path)
    writer.keep(5)
    writer.add(steps(lived, 6, 16))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("icrl.data.history_store.write_json", Mock(side_effect=KeyboardInterrupt))
        writer.commit()
    write(writer_of(tmp_path), lived, 5)
    assert_holds(open_histories(tmp_path), lived)


@pytest.mark.parametrize(
    ("num_obs", "num_actions", "num_rewards", "limit", "dtypes"),  # the action after the last says that it is unknown
    [
        (2**8, 255, 256, 256, "uint8 uint8 uint8 uint8 uint8 uint8"),
        (2**8 + 1, 256, 257, 257, "uint16 uint8 uint16 uint16 uint16 uint16"),
        (2**16 + 1, 257, 3, 9, "uint32 uint16 uint8 uint32 uint8 uint16"),
    ],
)
def test_dtypes_are_the_smallest_that_hold_all(tmp_path, num_obs, num_actions, num_rewards, limit, dtypes):
    spec = discrete_spec(num_obs, num_actions, tuple(map(float, range(num_rewards))), 9, limit)
    found = {name: dtype for name, (dtype, _) in column_forms(spec).items()}
    assert found.pop("terminated") == found.pop("truncated") == "uint8" and list(found.values()) == dtypes.split()
    lived = life(3, spec)
    write(writer_of(tmp_path, 3, spec), lived)
    assert_holds(open_histories(tmp_path), lived)


@settings(max_examples=10)
@given(data=st.data(), complete=st.booleans())
def test_a_changed_step_is_noticed_before_a_run_continues(tmp_path_factory, data, complete) -> None:
    """A change in a block that a run continues from is refused; a block that is written again is healed."""
    folder, lived = tmp_path_factory.mktemp("histories"), life()
    stops = [*sorted(data.draw(st.sets(st.integers(1, NUM_STEPS - 1), max_size=4))), NUM_STEPS]
    name, resumed_from = data.draw(st.sampled_from(COLUMNS)), data.draw(st.integers(0, NUM_STEPS))
    row, step = data.draw(st.integers(0, NUM_ROWS - 1)), data.draw(st.integers(0, NUM_STEPS - 1))
    writer = writer_of(folder)
    write(writer, lived, 0, *stops[:-1], finish=complete)
    column = np.load(folder / f"{name}.npy", mmap_mode="r+")
    recorded = column[row, step].copy()
    column[row, step] ^= 1
    column.flush()
    again = writer_of(folder)
    start = max(edge for edge in [0, *stops] if edge <= step)  # of the block that was changed
    where = "" if complete else f" in the block of steps {start} to {min(e for e in stops if e > step) - 1}"
    if complete or start < resumed_from:
        with pytest.raises(DamagedHistoriesError, match=rf"{folder}/{name}\.npy is damaged{where}: "):
            again.keep(resumed_from)
    else:
        again.keep(resumed_from)
        write(again, lived, *({resumed_from} - {NUM_STEPS}))
        assert_holds(open_histories(folder), lived)
    if not complete:
        with pytest.raises(DamagedHistoriesError, match=rf"{name}\.npy is damaged in the block"):
            column[row, step] = recorded ^ 1
            writer.finish()


def test_a_full_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the work, if there is no space to reserve. A writer that could write nothing starts anew."""
    full = Mock(side_effect=OSError(28, "No space left on device"))
    with monkeypatch.context() as patch:
        patch.setattr("icrl.runs.files.os.posix_fallocate", full)
        with pytest.raises(PipelineError, match=r"cannot reserve .* No space left on device"):
            writer_of(tmp_path)
    writer = writer_of(tmp_path)
    writer.add(life())
    with monkeypatch.context() as patch:
        patch.setattr(np.memmap, "flush", full)
        with pytest.raises(PipelineError, match=r"cannot write .*npy: No space left on device"):
            writer.commit()
    write(writer_of(tmp_path), life())
    assert_holds(open_histories(tmp_path), life())
    (tmp_path / "folder/obs.npy").mkdir(parents=True)
    with pytest.raises(PipelineError, match=r"cannot write .*obs\.npy: Is a directory"):
        writer_of(tmp_path / "folder")


class Exploit:
    def __reduce__(self) -> tuple:
        return pytest.fail, ("unpickled",)


DAMAGES = {
    "one bit flipped": lambda path: path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1])),
    "a byte more": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "a byte less": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "empty": lambda path: path.write_bytes(b""),
    "gone": Path.unlink,
    "other dtype": lambda path: np.save(path, np.load(path).astype(np.int16)),
    "other shape": lambda path: np.save(path, np.load(path)[:, :-1]),
    "other order": lambda path: np.save(path, np.asfortranarray(np.load(path))),
    "pickled objects": lambda path: np.save(path, np.full((NUM_ROWS, NUM_STEPS), Exploit())),
    "a bad header": lambda path: path.write_bytes(b"\x93NUMPY\x01\x00\x10\x00{'descr': import}"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_column_is_refused_by_name(copy: Path, damage) -> None:
    """Nothing is unpickled."""
    damage(copy / "truncated.npy")
    with pytest.raises(DamagedHistoriesError, match=f"{copy}/truncated.npy"):
        open_histories(copy)


CHANGES = [
    {"schema_version": 1},
    {"extra": 1},
    {"columns": None},
    {"rows": ROWS | {"num_envs": "3"}},
    {"rows": ROWS | {"num_learners": 3}},
    {"complete": False},  # without blocks
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_manifest_of_another_form_is_refused(copy: Path, change: dict[str, Any]) -> None:
    """Even with its checksum made anew."""
    write_json(copy / "manifest.json", read_json(copy / "manifest.json") | change)
    with pytest.raises(DamagedHistoriesError, match=str(copy)):
        open_histories(copy)


def success_in_loops(histories: Histories) -> np.ndarray:
    """Walk each row through its whole life, and count the episodes that end in its last tenth. A success is a reward
    above 0; other kinds are in `envs/test_rollout.py`."""
    columns, rows = histories.columns, histories.manifest["rows"]
    num_rows, num_steps = columns["obs"].shape
    found = [[] for _ in range(num_rows // rows["num_envs"])]
    for row in range(num_rows):
        success = False
        for t in range(num_steps):
            success |= histories.spec.reward_values[columns["reward"][row, t]] > 0
            if columns["terminated"][row, t] or columns["truncated"][row, t]:
                found[row // rows["num_envs"]] += [success] if t >= num_steps * 9 // 10 else []
                success = False
    return np.reshape([np.mean(one or [False]) for one in found], (-1, rows["num_learners"]))


@settings(max_examples=25)
@given(data=st.data(), num_steps=st.integers(1, 120), limit=st.integers(1, 30), seed=st.integers(0, 10**6))
def test_final_success_equals_loops(data: st.DataObject, num_steps: int, limit: int, seed: int) -> None:
    """Several rewards an episode, episodes that began before the last tenth, and stretches where no episode ends."""
    rng, shape = np.random.default_rng(seed), (NUM_ROWS, num_steps)
    terminated = rng.random(shape) < data.draw(st.sampled_from([0.0, 0.05, 0.4]))
    timestep = np.zeros(shape, int)
    for t in range(1, num_steps):
        over = terminated[:, t - 1] | (timestep[:, t - 1] == limit - 1)
        timestep[:, t] = np.where(over, 0, timestep[:, t - 1] + 1)
    zero, reward = np.zeros(shape), rng.random(shape) < data.draw(st.sampled_from([0.05, 0.4]))
    columns = Rollout(zero, zero, reward, zero, timestep, terminated, timestep == limit - 1, zero)
    values = data.draw(st.sampled_from([(0.0, 1.0), (1.0, 0.0), (-1.0, 2.0), (0.0, -1.0)]))
    spec = SPEC._replace(reward_values=values, max_episode_steps=limit, success="reward")
    manifest = {"env": json.loads(json.dumps(spec.to_json())), "tasks": TASKS, "rows": ROWS}
    histories = Histories(Path(), manifest, {k: v.astype(np.uint8) for k, v in columns._asdict().items()})
    assert np.allclose(histories.final_success(), success_in_loops(histories), atol=1e-12)
