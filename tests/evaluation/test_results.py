"""Results on disk: exact and small episodes, and refusal of results of another form."""

from pathlib import Path

import numpy as np
import pytest
from results import OWNER, write_results

from icrl.contracts import PipelineError
from icrl.evaluation.in_context import Adaptation
from icrl.evaluation.report import read_results, save_episodes


def test_episodes_have_the_smallest_type_that_is_exact(tmp_path: Path) -> None:
    ends = ((0.0, 255.0), (-3.0, 5.0), (0.0, 300.0), (0.5, 2.25), (0.5, 70_000.0), (0.1, 0.30000000000000004))
    for kind, (low, high) in zip(("u1", "i1", "u2", "f2", "f4", "f8"), ends, strict=True):
        values = np.array([[[low, high]]])
        checksum = save_episodes(tmp_path, {"held_out": Adaptation(values, values > 0, values, values)}, OWNER)
        with np.load(tmp_path / "episodes.npz", allow_pickle=False) as found:
            assert found["held_out/returns"].dtype == np.dtype(kind) and found["held_out/success"].dtype == np.uint8
            assert found["held_out/returns"].tolist() == values.tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["episodes.npz"]
    assert save_episodes(tmp_path, {"held_out": Adaptation(values, values > 0, values, values)}, OWNER) == checksum


def test_results_of_another_form_are_refused(tmp_path: Path) -> None:
    write_results(tmp_path)
    assert read_results(tmp_path)[1] == OWNER
    protocol = {"num_tasks": {}, "decoding": "1", "confidence": 0.95}
    for changes in ({"final": {}}, {"curves": {"random": {}}}, {"protocol": protocol}, {"episodes": 3}):
        write_results(tmp_path, **changes)
        with pytest.raises(PipelineError, match=r"results\.json has unexpected content"):
            read_results(tmp_path)
