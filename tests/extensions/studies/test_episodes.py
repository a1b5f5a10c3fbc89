"""Episodes of an evaluation, as a study reads them."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from results import OWNER

from icrl.contracts import PipelineError
from icrl.evaluation.in_context import Adaptation
from icrl.evaluation.report import save_episodes
from icrl.extensions.studies.combined import load_episodes
from icrl.runs.files import sha256


def adaptation(*values: float) -> Adaptation:
    column = np.array([[values]])
    return Adaptation(column, column > 0, np.full_like(column, 7), np.full_like(column, 7))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=4))
@settings(deadline=None, max_examples=20)
def test_saved_episodes_come_back(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    folder = tmp_path_factory.mktemp("episodes")
    episodes = {"held_out": adaptation(*values), "model, greedy/0.5": adaptation(1.0)}
    coverage = {"model, context kept": np.array([[[0.1, 0.7]]]), "random": np.array([[[0.0, 1.0]]])}
    further = {"coverage": coverage, "other_goal_first": {"moved goal: model/0.5": np.array([[[0.0, 1.0]]])}}
    found, measured = load_episodes(folder, save_episodes(folder, episodes, OWNER, further))
    assert list(found) == list(episodes)
    for kind, arrays in further.items():
        assert list(measured[kind]) == list(arrays)
        assert all(np.array_equal(measured[kind][name], values) for name, values in arrays.items())
    for name, expected in episodes.items():
        assert all(column.dtype == np.float64 for column in found[name])
        np.testing.assert_array_equal(np.stack(found[name]), np.stack(expected).astype(np.float64))


def test_other_arrays_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "episodes.npz", **{"held_out/returns": np.zeros((1, 1, 1))})
    with pytest.raises(PipelineError, match="has other arrays than this version writes: evaluate again"):
        load_episodes(tmp_path, sha256(tmp_path / "episodes.npz"))
