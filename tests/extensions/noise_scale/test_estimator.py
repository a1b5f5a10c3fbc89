"""Noise scales by hand and by their equations, in a run and on several ranks."""

import itertools
import math
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from toy import CPU, SEED, Naming, assert_same, batch_at, config_of, model_of, run, values_of

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.contracts import Batch, ConfigError
from icrl.extensions.noise_scale.estimator import GradientNoiseScale, make_noise_scale
from icrl.runs import checkpoint
from icrl.runs.distributed import Ranks
from icrl.training import fit

KINDS = ("alternative", "paper")
FIRST = np.array([[3.0, 1.0], [1.0, 2.0]])


def test_the_first_estimate_of_a_run_is_of_its_first_model_and_changes_nothing(tmp_path: Path) -> None:
    """A batch needs two windows per process."""
    loss = lambda model, batch: (Naming()(model, batch)[0]["naming"], {})  # noqa: E731
    expected = GradientNoiseScale("paper", 100).measure(model_of(SEED), loss, batch_at(0), 1)
    for kind in ("none", "paper"):
        shown = {"gradient_noise_scale": kind, "num_summaries": 0, "summary_interval": 1}
        run(tmp_path / kind, config_of(trainer={"num_iterations": 4, "evaluate": False}, summaries=shown))
    assert expected
    for name, value in expected.items():
        assert values_of(tmp_path / "paper", f"train/{name}")[0] == pytest.approx(value, rel=1e-5), name
    off, on = (checkpoint.load_newest(tmp_path / kind, "last", CPU)[0] for kind in ("none", "paper"))
    assert torch.equal(off["generators"]["cpu"][0], on["generators"]["cpu"][0])
    assert_same(off["model"], on["model"])
    config = config_of(summaries={"gradient_noise_scale": "paper"})
    make_noise_scale(config.summaries, config.trainer, Ranks(0, 4))
    with pytest.raises(ConfigError, match=r"gradient_noise_scale=paper .* trainer\.mini_batch_size=8 .* 5 processes"):
        make_noise_scale(config.summaries, config.trainer, Ranks(0, 5))


@pytest.mark.parametrize("there", [(False, True), (True, False)])
def test_a_run_continues_when_the_extension_comes_or_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: tuple[bool, bool]
) -> None:
    for installed, updates in zip(there, (2, 4), strict=True):
        monkeypatch.setattr(fit, "NOISE_SCALES", [make_noise_scale] if installed else [])
        continued = run(tmp_path / "both", config_of(trainer={"num_iterations": updates, "evaluate": False}))
    once = run(tmp_path / "once", config_of(trainer={"num_iterations": 4, "evaluate": False}))
    assert_same(continued.state_dict(), once.state_dict())
    assert ("noise_scale" in checkpoint.load_newest(tmp_path / "both", "last", CPU)[0]) == there[1]


def test_a_scale_that_cannot_be_shown_or_measured_is_refused() -> None:
    for option in ("summaries.num_summaries=0", "trainer.mini_batch_size=1"):
        with pytest.raises(ConfigError, match=rf"^summaries\.gradient_noise_scale=paper .*{option}"):
            load_config(["summaries.gradient_noise_scale=paper", option])
    load_config(["summaries.gradient_noise_scale=paper", "trainer.mini_batch_size=2"])


def test_a_batch_smaller_than_its_number_of_parts_is_measured_window_by_window() -> None:
    """Batches of trials can be so small."""
    config = config_of(summaries={"gradient_noise_scale": "paper"}, trainer={"gradient_accumulation_steps": 4})
    trainer = replace(config.trainer, mini_batch_size=2)
    found = make_noise_scale(config.summaries, trainer, Ranks()).measure(Slope(2), loss_of, windows(FIRST), 1)
    assert found == scale_of("paper", FIRST)


class Slope(nn.Module):
    """Of a loss that is the mean of <weight, x> over windows: the gradient is the mean of their x."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, dtype=torch.float64))
        self.unused = nn.Parameter(torch.ones(3, dtype=torch.float64))
        self.frozen = nn.Parameter(torch.ones(1), requires_grad=False)


def loss_of(model: Slope, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    return (batch.obs @ model.weight).mean() + batch.reward.mean() * 0, {}


def windows(gradients: np.ndarray) -> Batch:
    """A batch whose row b has gradient `gradients[b]`."""
    return Batch(*[torch.from_numpy(gradients)] * len(Batch._fields))


def scale_of(kind: str, *batches: np.ndarray, interval: int = 1, ranks: Any = None) -> dict[str, float]:
    """Measured every `interval` updates; gradients are added up over three windows at a time."""
    found, noise_scale = {}, GradientNoiseScale(kind, 3)
    for number, batch in enumerate(batches, 1):
        found = noise_scale.measure(Slope(batch.shape[1]), loss_of, windows(batch), number * interval, ranks)
    return found


def test_averages_by_hand() -> None:
    """The second measurement has alpha = 2, beta = 5 at b = 1; an interval of 100 updates forgets 1 - 0.999^100."""
    second = np.array([[2.0, 0.0], [1.0, math.sqrt(5.0)]])
    kept = 0.999**100
    signal = (kept * 5 + 2) / (kept + 1)
    noise = (kept * 2.5 + 3) / (kept + 1)
    assert scale_of("alternative", FIRST, second, interval=100) == pytest.approx(
        {"gradient_noise_scale": noise / signal, "gradient_signal": signal, "gradient_noise": noise}
    )


@settings(max_examples=40)
@given(st.sampled_from(KINDS), st.integers(2, 45), st.integers(0, 10**6))
def test_one_batch_against_the_equations(kind: str, size: int, seed: int) -> None:
    """Gradients are means of rows here, so small that 1e-8 counts."""
    rows = np.random.default_rng(seed).normal(1e-4, 1e-4, (size, 4))
    if kind == "alternative":
        b = size // 2
        g1, g2 = rows[:b].mean(0), rows[b : 2 * b].mean(0)
        alpha, beta = sum(g1 * g2), (sum(g1**2) + sum(g2**2)) / 2
        signal, expected = alpha, (beta / alpha - 1) * b
    else:
        b = max(1, math.floor(0.1 * size))
        small, big = sum(rows[:b].mean(0) ** 2), sum(rows.mean(0) ** 2)
        signal = (size * big - b * small) / (size - b)
        expected = (small - big) / (1 / b - 1 / size) / (signal + 1e-8)
    found = scale_of(kind, rows, interval=10)
    assert bool(found) == (signal > 0 and expected >= 0)
    if found:
        assert [found["gradient_noise_scale"], found["gradient_signal"]] == pytest.approx([expected, signal])


@pytest.mark.parametrize("kind", KINDS)
def test_two_ranks_are_one_with_all_windows(kind: str) -> None:
    """Each rank holds every other window of each part; gradients meet in their mean."""
    rows = np.random.default_rng(1).normal(1.0, 1.0, (40, 4))
    order = np.r_[0:4:2, 4:40:2, 1:4:2, 5:40:2]  # of the windows of either rank: 2 of the first tenth, 18 others
    of_rank = rows[order].reshape(2, 20, 4)
    other = iter([(0, 10), (10, 20)] if kind == "alternative" else [(0, 2), (2, 20)])

    def average(gradient: Tensor) -> Tensor:
        start, stop = next(other)
        theirs = np.r_[of_rank[1, start:stop].mean(0), np.zeros(3)]  # with the parameters that nothing uses
        return (gradient + torch.from_numpy(theirs)) / 2

    ours = scale_of(kind, of_rank[0], ranks=Mock(size=2, average=average))
    assert ours and ours == pytest.approx(scale_of(kind, rows))


def test_an_estimate_that_means_nothing_leaves_the_last_valid_one() -> None:
    noise_scale, updates = GradientNoiseScale("alternative", 3), itertools.count(1)
    opposed = FIRST * [[1.0], [-3.0]]  # alpha = -15

    def measure(rows: np.ndarray) -> dict[str, float]:
        return noise_scale.measure(Slope(2), loss_of, windows(rows), next(updates))

    assert scale_of("alternative", opposed) == {}
    assert measure(FIRST)["gradient_noise_scale"] == pytest.approx(0.5)
    found = measure(opposed)
    assert found["gradient_noise_scale"] == pytest.approx(0.5) and found["gradient_signal"] < 0
    before = noise_scale.state_dict()
    overflow = np.array([[1e200, 0.0], [0.0, 1e200]])  # alpha = 0, beta is infinite
    for nothing in (FIRST * math.nan, FIRST * math.inf, overflow):
        assert measure(nothing) == found
    assert noise_scale.state_dict() | {"update": 2} == before
    for _ in range(5):  # as the averages are not spoilt, they recover
        found = measure(FIRST)
    assert 0.5 < found["gradient_noise_scale"] < math.inf and found["gradient_signal"] > 0
    before = noise_scale.state_dict()
    assert measure(FIRST[:1]) == {} and noise_scale.state_dict() == before, "batches of trials may be single windows"
