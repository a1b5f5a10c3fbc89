"""Combination of several evaluations."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from results import OWNER

from icrl.app.compose import load_config
from icrl.contracts import PipelineError
from icrl.envs.rooms import RoomConfig
from icrl.evaluation.in_context import Adaptation
from icrl.evaluation.protocol import Setting, summarise
from icrl.evaluation.report import read_results, save_episodes
from icrl.extensions.studies.combined import SettingOfSplits, combined, load_episodes
from icrl.runs.files import sha256, write_owned

OPTIONS = load_config(["evaluation.num_bootstrap=100"]).evaluation
REST = {"success": [1.0, 1.0], "steps_to_goal": [3.0, 3.0]}
POSSIBLE = {"returns": (0.0, 10.0), "steps_to_goal": (1.0, 20.0)}
EXACT = {"random": {"returns": [0.5, 0.0], **REST}, "optimum": {"returns": [6.0, 1.0], **REST}}


def life(seed: int, num_streams: int = 3) -> dict[str, Adaptation]:
    rng, found = np.random.default_rng(seed), {}
    for name in ("held_out", "train", "searcher", "moved goal: model"):
        values = rng.integers(3, size=(2, num_streams, 8)).astype(float)
        found[name] = Adaptation(values, (values >= 1) * 1.0, np.full_like(values, 2), np.full_like(values, 2))
    return found


def covered(seed: int) -> dict[str, Any]:
    shares = np.random.default_rng(seed).random((1, 5, 3)).cumsum(axis=2) / 3
    return {"model, context kept": shares, "random": shares / 2}


def measured(seed: int) -> dict[str, dict[str, Any]]:
    """Arrays of diagnostics: exploration, and episodes that visit another goal first."""
    misled = np.random.default_rng(seed).integers(2, size=(2, 3, 8)).astype(float)
    plan = {kind: {"random": covered(seed + more)["random"]} for more, kind in enumerate(("off_plan", "blind_replay"))}
    return {"coverage": covered(seed), **plan, "other_goal_first": {"moved goal: model": misled}}


def written(folder: Path, seed: int, found: dict[str, Adaptation], **changes: Any) -> Path:
    """An evaluation on disk, as stage three leaves it; `changes` to its results."""
    setting = Setting(dict.fromkeys(found, EXACT), changes.pop("decoding", "1"), True, POSSIBLE, True)
    results = {
        "config": {"env": {"size": 3}, "seed": seed},
        "held_out_tasks": [[7], [4]],
        "train_tasks": [[1], [2]],
        "references": setting.references,
        **summarise({seed: found}, setting, OPTIONS, seed, [measured(seed)]),
        "checkpoint": "abc",
        "episodes": save_episodes(folder, found, OWNER, measured(seed)),
    }
    write_owned(folder / "results.json", OWNER, 6, results | changes)
    return folder


def test_runs_are_combined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [written(tmp_path / str(seed), seed, life(seed)) for seed in (4, 2)]
    found = combined(folders, OPTIONS, 5)
    setting = Setting({"held_out": EXACT, "train": EXACT}, "1", True, POSSIBLE, True)
    assert found == {
        **summarise({2: life(2), 4: life(4)}, setting, OPTIONS, 5, [measured(2), measured(4)]),
        "held_out_tasks": [[7], [4]],
        "train_tasks": [[1], [2]],
        "references": dict.fromkeys(life(4), EXACT),
    }
    assert found["protocol"]["seeds"] == [2, 4] and "regret" in found["final"]["held_out"]
    again = written(tmp_path / "again", 2, life(2), config={"env": {"size": 3, "num_workers": 2}, "seed": 2})
    assert combined([folders[0], again], OPTIONS, 5) == found, "worker processes are no other world"
    monkeypatch.setattr(RoomConfig, "former", {"walls": 0}, raising=False)
    for number, env in enumerate(({"name": "dark_room"}, {"name": "dark_room", "walls": 0})):
        config = {"config": {"env": env | {"size": 3}, "seed": number}}
        folders.append(written(tmp_path / f"world-{number}", number, life(number), **config))
    assert combined(folders[2:], OPTIONS, 5)["protocol"]["seeds"] == [0, 1], "an option that is a constant now"
    alone = combined(folders[:1], OPTIONS, 4)
    results, _ = read_results(folders[0])
    assert results | alone == results and results.keys() - alone.keys() == {"config", "checkpoint", "episodes"}


def test_unlike_runs_are_refused(tmp_path: Path) -> None:
    first, second = written(tmp_path / "first", 0, life(0)), tmp_path / "second"
    for seed, num_streams, changes, words in (
        (1, 3, {"held_out_tasks": [[7], [5]]}, "held-out tasks"),
        (1, 3, {"train_tasks": [[1], [3]]}, "training tasks"),
        (1, 3, {"config": {"env": {"size": 4}, "seed": 1}}, "worlds"),
        (1, 3, {"decoding": "0"}, "decodings"),
        (1, 2, {}, "policies, streams or episodes"),
        (0, 3, {}, "same seed"),
    ):
        written(second, seed, life(seed, num_streams), **changes)
        with pytest.raises(PipelineError, match=f"{first} and {second} .* {words}"):
            combined([first, second], OPTIONS, 0)


def test_runs_on_several_splits_are_draws_of_one_interval(tmp_path: Path) -> None:
    """Their tasks differ; each is measured against its own references, and the interval is that of Student's t."""
    folders, expected = list[Path](), list[float]()
    for number, (split, seed) in enumerate(((31, 0), (31, 1), (33, 0), (32, 0))):
        config = {"env": {"size": 3}, "tasks": {"seed": split}, "seed": seed}
        tasks = {"held_out_tasks": [[split], [split + 1]], "train_tasks": [[1], [split + 2]]}
        folders.append(written(tmp_path / str(number), seed, life(number), config=config, **tasks))
        expected.append(life(number)["held_out"].returns[..., -2:].mean())
    options = OPTIONS.model_copy(update={"num_bootstrap": 20_000})
    found = combined(folders, options, 0)
    assert combined(folders[::-1], options, 0) == found
    returns = found["final"]["held_out"]["returns"]
    assert found["splits"] == [31, 32, 33] and "held_out_tasks" not in found and "references" not in found
    assert found["protocol"]["seeds"] == [
        f"split {one}" for one in ("31, seed 0", "31, seed 1", "32, seed 0", "33, seed 0")
    ]
    assert returns["mean"] == pytest.approx(np.mean(expected))
    of_splits = [np.mean(expected[:2]), *expected[2:]]  # both runs of the first split share its tasks
    half = 4.303 * np.std(of_splits, ddof=1) / 3**0.5  # t of 2 degrees of freedom
    assert returns["high"] - returns["low"] == pytest.approx(2 * half, rel=0.15)
    assert "success_per_task" not in found["final"]["held_out"]
    assert found["curves"]["optimum"]["returns"]["mean"] == pytest.approx([np.mean(EXACT["optimum"]["returns"])] * 8)
    with pytest.raises(PipelineError, match="held-out tasks and training tasks differ"):
        other = {"config": {"env": {"size": 3}, "tasks": {"seed": 33}, "seed": 5}, "held_out_tasks": [[1], [2]]}
        combined([*folders, written(tmp_path / "other", 5, life(5), **other)], OPTIONS, 0)


def test_splits_with_other_numbers_of_paid_tasks_are_joined() -> None:
    """The fraction of the optimum is one of tasks that pay: two on the first split, one on the other."""
    ones = np.ones((2, 2, 8))
    runs = [{"held_out": Adaptation(ones, ones, 2 * ones, 2 * ones)}] * 2

    def final(*optima: list[float]) -> dict[str, Any]:
        each = [{"returns": optimum, **REST} for optimum in optima]
        apart = [{"held_out": {"random": EXACT["random"], "optimum": one}} for one in each]
        setting = SettingOfSplits(apart[0], "1", regrets=False, apart=apart, splits=[0, 1])
        return summarise(dict(enumerate(runs)), setting, OPTIONS, 0)["final"]["held_out"]

    assert final([2.0, 2.0], [4.0, 0.0])["fraction_of_optimum"]["mean"] == pytest.approx((1 / 2 + 1 / 4) / 2)
    assert "fraction_of_optimum" not in final([2.0, 2.0], [0.0, 0.0]), "one split has no task that pays"


def test_a_task_that_several_splits_hold_out_is_one_draw(tmp_path: Path) -> None:
    """All are solved: three of four tasks in the exact interval, not four of four."""
    solved = {name: played._replace(success=np.ones_like(played.success)) for name, played in life(0).items()}
    folders = []
    for split in (31, 32):
        config = {"env": {"size": 3}, "tasks": {"seed": split}, "seed": 0}
        tasks = {"held_out_tasks": [[split], [split + 1]], "train_tasks": [[1], [2]]}
        folders.append(written(tmp_path / str(split), 0, solved, config=config, **tasks))
    found = combined(folders, OPTIONS, 0)
    final, of_extensions = found["final"], found.get("moved_goal", {"model": {"final": {}}})["model"]["final"]
    for number in (final["held_out"].get("success_after_first"), of_extensions.get("success")):
        assert number is None or number["low"] == pytest.approx(0.025 ** (1 / 3))
    assert final["held_out"]["success"]["low"] == pytest.approx(0.025 ** (1 / 3))
    assert final["train"]["success"]["low"] == pytest.approx(0.025 ** (1 / 2))


def test_folders_with_other_episodes_or_no_results_are_refused(tmp_path: Path) -> None:
    folder = written(tmp_path, 0, life(0))
    combined([folder], OPTIONS, 0)
    save_episodes(folder, life(0, 2), OWNER, measured(0))
    with pytest.raises(PipelineError, match=r"episodes\.npz is missing, damaged, or not the one of"):
        combined([folder], OPTIONS, 0)
    (folder / "results.json").unlink()
    with pytest.raises(PipelineError, match=r"results\.json"):
        combined([folder], OPTIONS, 0)


# ---- episodes that were saved


def adaptation(*values: float) -> Adaptation:
    column = np.array([[values]])
    return Adaptation(column, column > 0, np.full_like(column, 7), np.full_like(column, 7))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=4))
@settings(max_examples=20)
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
