"""Curves of the training of a critic."""

import critics
import numpy as np
import pytest

from icrl.app.compose import load_config
from icrl.contracts import ConfigError
from icrl.extensions.offline_rl.curves import critic_figure, write_value_curves
from icrl.runs import checkpoint

STEPS = np.arange(4.0)


def legend(figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def logged(**values: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {f"train/{name}": (STEPS, value + STEPS / 10) for name, value in values.items()}


@pytest.mark.parametrize("bounded", [True, False])
def test_figure_of_a_critic_shows_the_curves_there_are(bounded: bool) -> None:
    curves = logged(td_error=1, q1=2, q=5, v=6, largest_q=7) | (logged(value=3, conservative=4) if bounded else {})
    curves["train/q_over_bound"] = (STEPS, curves["train/largest_q"][1] / 20 if bounded else 0 * STEPS)
    figure = critic_figure(curves, "run")
    bold = [[line.get_ydata() for line in axes.lines if line.get_alpha() is None] for axes in figure.axes]
    for lines, starts in zip(bold, ([1], [2, 3, 4] if bounded else [2], [5, 6]), strict=False):
        np.testing.assert_allclose(lines, [start + STEPS / 10 for start in starts])
    largest, *bound = bold[3]
    np.testing.assert_allclose(largest, 7 + STEPS / 10)
    np.testing.assert_allclose(bound, [[20, 20]] if bounded else np.empty((0,)))
    assert legend(figure) == (["Q", "V", "conservative", "bound"] if bounded else ["Q", "V"])


def test_curves_of_values_are_refused_without_a_training_or_its_curves(tmp_path):
    config = load_config(["experiment=tiny", f"root={tmp_path}"])
    with pytest.raises(ConfigError, match="train-ilql"):
        write_value_curves(config)
    folder = config.folder("logs") / "ilql"
    checkpoint.save(folder, "last", 1, {"model": {}}, critics.described(), 1)
    critics.finish(folder, 1)
    with pytest.raises(ConfigError, match=r"summaries\.num_summaries=0"):
        write_value_curves(config)
