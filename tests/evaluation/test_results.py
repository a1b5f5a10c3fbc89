"""Results on disk: exact and small episodes, and refusal of damaged files."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from results import OWNER, write_results

from icrl.contracts import PipelineError
from icrl.evaluation.in_context import Adaptation
from icrl.evaluation.report import load_episodes, read_results, save_episodes
from icrl.runs.files import sha256


def adaptation(*values: float) -> Adaptation:
    column = np.array([[values]])
    return Adaptation(column, column > 0, np.full_like(column, 7), np.full_like(column, 7))


def test_episodes_have_the_smallest_type_that_is_exact(tmp_path: Path) -> None:
    ends = ((0.0, 255.0), (-3.0, 5.0), (0.0, 300.0), (0.5, 2.25), (0.5, 70_000.0), (0.1, 0.30000000000000004))
    for kind, (low, high) in zip(("u1", "i1", "u2", "f2", "f4", "f8"), ends, strict=True):
        checksum = save_episodes(tmp_path, {"held_out": adaptation(low, high)}, OWNER)
        with np.load(tmp_path / "episodes.npz", allow_pickle=False) as found:
            assert found["held_out/returns"].dtype == np.dtype(kind) and found["held_out/success"].dtype == np.uint8
        loaded = load_episodes(tmp_path, checksum)[0]["held_out"]
        assert loaded.returns.tolist() == [[[low, high]]] and all(values.dtype == np.float64 for values in loaded)
    np.savez(tmp_path / "episodes.npz", **{"held_out/returns": np.zeros((1, 1, 1))})
    with pytest.raises(PipelineError, match="has other arrays than this version writes: evaluate again"):
        load_episodes(tmp_path, sha256(tmp_path / "episodes.npz"))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=4))
@settings(deadline=None, max_examples=20)
def test_saved_episodes_come_back_and_make_the_same_file(tmp_path_factory, values):
    folder = tmp_path_factory.mktemp("episodes")
    episodes = {"held_out": adaptation(*values), "model, greedy/0.5": adaptation(1.0)}
    coverage = {"model, context kept": np.array([[[0.1, 0.7]]]), "random": np.array([[[0.0, 1.0]]])}
    further = {"coverage": coverage, "other_goal_first": {"moved goal: model/0.5": np.array([[[0.0, 1.0]]])}}
    checksum = save_episodes(folder, episodes, OWNER, further)
    found, measured = load_episodes(folder, checksum)
    assert list(found) == list(episodes)
    for kind, arrays in further.items():
        assert list(measured[kind]) == list(arrays)
        assert all(np.array_equal(measured[kind][name], values) for name, values in arrays.items())
    for name, expected in episodes.items():
        np.testing.assert_array_equal(np.stack(found[name]), np.stack(expected).astype(np.float64))
    assert [path.name for path in folder.iterdir()] == ["episodes.npz"]
    assert save_episodes(folder, episodes, OWNER, further) == checksum


def test_results_of_another_form_are_refused(tmp_path: Path) -> None:
    write_results(tmp_path)
    assert read_results(tmp_path)[1] == OWNER
    protocol = {"num_tasks": {}, "decoding": "1", "confidence": 0.95}
    for changes in ({"final": {}}, {"curves": {"random": {}}}, {"protocol": protocol}, {"episodes": 3}):
        write_results(tmp_path, **changes)
        with pytest.raises(PipelineError, match=r"results\.json has unexpected content"):
            read_results(tmp_path)
