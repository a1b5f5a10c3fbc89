"""Writers of curves by name."""

from pathlib import Path
from typing import Any

import pytest

from icrl.contracts import ConfigError
from icrl.runs import writers
from icrl.runs.metrics import CurvesConfig, MetricLogger
from icrl.runs.writers import Writer, writer, writer_classes


@pytest.mark.parametrize("given", [[], ["tensorbord"], ["tensorboard", "board"]])
def test_writers_that_do_not_exist_are_refused(given: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"summaries\.writer=.*: must .*tensorboard"):
        CurvesConfig(writer=given)


def test_a_writer_of_ones_own_gets_all_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points: list[Any] = []

    class Kept(Writer):
        def scalars(self, values: dict[str, float], step: int) -> None:
            points.append((step, values))

    monkeypatch.setattr(writers, "_classes", dict(writer_classes()))
    writer("kept")(Kept)
    with pytest.raises(ConfigError, match="another writer of this name"):
        writer("tensorboard")(Kept)
    logger = MetricLogger(tmp_path, 0, CurvesConfig(writer=["kept"], summary_interval=1, num_summaries=0))
    logger.scalars("train", {"loss": 0.5}, 1)
    logger.close()
    assert points[0] == (1, {"train/loss": 0.5}) and not [*tmp_path.iterdir()]
