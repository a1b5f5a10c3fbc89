"""Stores and windows of observations that are many numbers: columns `[rows, time, K]`."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lives import ALIKE, CONFIG, CPU

from icrl.config.options import replace
from icrl.contracts import EnvSpec, Rollout
from icrl.data.history_store import Histories, HistoryWriter, column_dtypes, open_histories, read_manifest
from icrl.data.windows import Windows

SPEC = EnvSpec(2**31, 4, (0.0, 1.0), 0, 20, "end", points=(5, 3))
TASKS = {"all": [[3], [7], [9]], "seed": 0, "train": [2, 0], "held_out": [1]}
ROWS = {"num_learners": 2, "num_envs": 2}
NUM_ROWS, NUM_STEPS, K = 8, 30, 22


def life(spec: EnvSpec = SPEC) -> Rollout:
    """Transitions `[T, rows]`, with the smallest and the largest number there is; episodes of 3 steps."""
    generator = torch.Generator().manual_seed(0)

    def below(high: int, *more: int) -> torch.Tensor:
        return torch.randint(high, (NUM_STEPS, NUM_ROWS, *more), generator=generator)

    obs, next_obs = below(spec.num_obs, K), below(spec.num_obs, K)
    obs[0, 0, 0], obs[-1, -1, -1], next_obs[3, 3, 3] = 0, spec.num_obs - 1, spec.num_obs - 1
    time = torch.arange(NUM_STEPS)[:, None].expand(-1, NUM_ROWS)
    end = time % 3 == 2
    return Rollout(obs, below(4), below(2), next_obs, time % 20, end, ~end & False, torch.full_like(time, 4))


def write(folder: Path, lived: Rollout, edges: tuple[int, ...] = (0, NUM_STEPS), spec: EnvSpec = SPEC) -> None:
    writer = HistoryWriter(folder, spec, NUM_STEPS, TASKS, ROWS, {"seed": 0})
    for start, stop in pairwise(edges):
        writer.add(Rollout(*(column[start:stop] for column in lived)))
        writer.commit(start)
    writer.finish()


def assert_holds(histories: Histories, lived: Rollout) -> None:
    for name in Rollout._fields:
        column = getattr(lived, name).transpose(0, 1).numpy()
        assert histories.columns[name].shape == column.shape
        assert np.array_equal(histories.columns[name].astype(np.int64), column), name


@pytest.mark.parametrize(
    ("num_obs", "dtype"),
    [(2**8, "uint8"), (2**8 + 1, "uint16"), (2**16, "uint16"), (2**16 + 1, "uint32"), (2**31, "uint32")],
)
def test_round_trip_in_the_smallest_dtype(tmp_path: Path, num_obs: int, dtype: str) -> None:
    spec = SPEC._replace(num_obs=num_obs)
    lived = life(spec)
    write(tmp_path, lived, (0, 4, 5, 17, 30), spec)
    histories = open_histories(tmp_path)
    assert_holds(histories, lived)
    assert histories.spec == spec and histories.columns["obs"].shape == (NUM_ROWS, NUM_STEPS, K)
    assert column_dtypes(spec)["obs"] == column_dtypes(spec)["next_obs"] == histories.columns["obs"].dtype == dtype
    assert histories.final_success().tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("resumed_from", [0, 5, 12])
def test_an_interrupted_writer_goes_on(tmp_path: Path, resumed_from: int) -> None:
    lived = life()
    writer = HistoryWriter(tmp_path, SPEC, NUM_STEPS, TASKS, ROWS, {"seed": 0})
    writer.add(Rollout(*(column[:12] for column in lived)))
    writer.commit(0)
    writer.add(Rollout(*(column[12:20] for column in lived)))
    del writer
    assert read_manifest(tmp_path)["committed"] == 12
    found = np.load(tmp_path / "obs.npy")
    assert np.array_equal(found[:, :12], lived.obs[:12].transpose(0, 1)) and not found[:, 12:].any()
    write(tmp_path, lived, (resumed_from, NUM_STEPS))
    assert_holds(open_histories(tmp_path), lived)


@settings(deadline=None, max_examples=20)
@given(
    context_len=st.integers(1, 7),
    keep_every=st.lists(st.integers(1, 3), min_size=1, max_size=2),
    kept=st.integers(0, 20),
)
def test_windows_are_of_the_same_steps_in_every_number(
    tmp_path_factory: pytest.TempPathFactory, context_len: int, keep_every: list[int], kept: int
) -> None:
    """Whatever is selected, each step of a window is one of the steps that were lived, in all its columns."""
    lived = life()
    folder = tmp_path_factory.mktemp("store")
    write(folder, lived)
    config = replace(CONFIG, keep_every=keep_every, kept_steps=kept if kept > 7 else 0)
    windows = Windows(open_histories(folder), config, ALIKE, [0, 2], context_len, CPU)
    number = torch.arange(windows.num_windows)
    batch = windows.at(number)
    assert batch.obs.shape == batch.next_obs.shape == (len(number), context_len, K)
    assert batch.obs.dtype == torch.long and batch.action.shape == (len(number), context_len)
    rows = {tuple(obs): place for place, obs in enumerate(lived.obs.flatten(0, 1).tolist())}
    places = torch.tensor([[rows[tuple(obs)] for obs in window] for window in batch.obs.tolist()])
    for name in ("action", "reward", "next_obs", "timestep", "terminated", "truncated", "optimal_action"):
        assert torch.equal(getattr(batch, name), getattr(lived, name).flatten(0, 1)[places].long()), name
    assert (places % NUM_ROWS == places[:, :1] % NUM_ROWS).all()  # no window leaves its row
    assert (places.diff(dim=1) > 0).all()
