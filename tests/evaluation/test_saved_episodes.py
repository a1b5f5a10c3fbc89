"""Episodes on disk: exact, small, and refused where they are not whole."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icrl.contracts import PipelineError
from icrl.evaluation.in_context import Adaptation
from icrl.evaluation.results import load_coverage, load_episodes, save_episodes
from icrl.runs.identity import Identity

OWNER = Identity("evaluate", "f00d")
RETURNS = {
    "whole": (0.0, 255.0, "u1"),
    "negative": (-3.0, 5.0, "i1"),
    "many": (0.0, 300.0, "u2"),
    "half": (0.5, 2.25, "f2"),
    "large half": (0.5, 70_000.0, "f4"),
    "tenths": (0.1, 0.30000000000000004, "f8"),
}


def adaptation(*values: float) -> Adaptation:
    column = np.array([[values]])
    return Adaptation(column, column > 0, np.full_like(column, 7), np.full_like(column, 7))


@pytest.mark.parametrize("name", RETURNS)
def test_the_smallest_type_that_is_exact(tmp_path: Path, name: str) -> None:
    low, high, kind = RETURNS[name]
    save_episodes(tmp_path, {"held_out": adaptation(low, high)}, OWNER)
    with np.load(tmp_path / "episodes.npz", allow_pickle=False) as found:
        assert found["held_out/returns"].dtype == np.dtype(kind)
        assert found["held_out/success"].dtype == np.uint8
    loaded = load_episodes(tmp_path, OWNER)["held_out"]
    assert loaded.returns.tolist() == [[[low, high]]]
    assert all(values.dtype == np.float64 for values in loaded)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=4))
@settings(deadline=None)
def test_whatever_is_saved_comes_back(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    folder = tmp_path_factory.mktemp("episodes")
    episodes = {"held_out": adaptation(*values), "model, greedy/0.5": adaptation(1.0)}
    save_episodes(folder, episodes, OWNER)
    found = load_episodes(folder, OWNER)
    assert list(found) == list(episodes)
    for name, expected in episodes.items():
        np.testing.assert_array_equal(np.stack(found[name]), np.stack(expected).astype(np.float64))
    assert [path.name for path in folder.iterdir()] == ["episodes.npz"]


def test_coverage_stands_beside_the_episodes(tmp_path: Path) -> None:
    coverage = {"model, context kept": np.array([[[0.1, 0.7]]]), "random": np.array([[[0.0, 1.0]]])}
    save_episodes(tmp_path, {"held_out": adaptation(1.0)}, OWNER, coverage)
    assert list(load_episodes(tmp_path, OWNER)) == ["held_out"]
    found = load_coverage(tmp_path)
    assert list(found) == list(coverage)
    for name, shares in coverage.items():
        np.testing.assert_array_equal(found[name], shares)
    save_episodes(tmp_path, {"held_out": adaptation(1.0)}, OWNER)
    assert load_coverage(tmp_path) == {}
    save_episodes(tmp_path, {"held_out": adaptation(1.0)}, OWNER, coverage | {"random": np.ones((1, 2))})
    with pytest.raises(PipelineError, match="episodes.npz: coverage/random must be"):
        load_coverage(tmp_path)


def test_the_same_episodes_make_the_same_file(tmp_path: Path) -> None:
    contents = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        save_episodes(folder, {"held_out": adaptation(1, 0, 1)}, OWNER)
        contents.append((folder / "episodes.npz").read_bytes())
    assert contents[0] == contents[1]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="episodes.npz"):
        load_episodes(tmp_path, OWNER)


def load(path: Path, content: bytes) -> Adaptation:
    path.write_bytes(content)
    return load_episodes(path.parent, OWNER)["held_out"]


def test_a_cut_or_damaged_file_is_refused(tmp_path: Path) -> None:
    save_episodes(tmp_path, {"held_out": adaptation(*range(50))}, OWNER)
    path = tmp_path / "episodes.npz"
    whole = path.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(PipelineError, match="episodes.npz is not readable"):
            load_episodes(tmp_path, OWNER)
    expected, found = np.stack(load(path, whole)), 0
    for place in range(0, len(whole), 3):  # a changed byte is noticed, or is none that matters, such as a date
        try:
            loaded = load(path, whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
            np.testing.assert_array_equal(np.stack(loaded), expected)
        except PipelineError as error:
            found += "episodes.npz" in str(error)
    assert found > len(whole) / 3 / 2
    path.write_bytes(b"no archive")
    with pytest.raises(PipelineError, match="episodes.npz"):
        load_episodes(tmp_path, OWNER)


def test_the_episodes_of_another_run_are_refused(tmp_path: Path) -> None:
    save_episodes(tmp_path, {"held_out": adaptation(1)}, OWNER)
    for other in (Identity("evaluate", "beef"), Identity("train_gpt", "f00d")):
        with pytest.raises(PipelineError, match=r"episodes\.npz is of evaluate \(run f00d\), and here belongs"):
            load_episodes(tmp_path, other)


WHOLE = {"owner": np.array(OWNER)} | {f"held_out/{field}": np.ones((2, 3, 4)) for field in Adaptation._fields}


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {name: WHOLE[name] for name in list(WHOLE)[:-1]},
        {name: values for name, values in WHOLE.items() if name != "owner"},
        WHOLE | {"owner": np.zeros(2)},
        WHOLE | {"owner": np.array("train_gpt")},
        WHOLE | {"held_out/more": np.ones((2, 3, 4))},
        WHOLE | {"held_out/returns": np.ones((2, 3, 5))},
        {name: values if name == "owner" else values[0] for name, values in WHOLE.items()},
        WHOLE | {"held_out/returns": np.full((2, 3, 4), "one")},
        WHOLE | {"held_out/returns": np.full((2, 3, 4), object())},
        WHOLE | {"train/returns": np.ones((2, 3, 4))},
    ],
)
def test_what_is_no_adaptation_is_refused(tmp_path: Path, arrays: dict[str, Any]) -> None:
    np.savez(tmp_path / "episodes.npz", **arrays)
    with pytest.raises(PipelineError, match="episodes.npz"):
        load_episodes(tmp_path, OWNER)
