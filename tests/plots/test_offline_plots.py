"""Pictures of offline RL show what was logged, what the objective weighs, and what evaluations found."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import critics
import numpy as np
import pytest
import results
import torch
from critics import CONFIG, batch_of, config_of, critic_of, shown
from harness import TINY
from matplotlib.figure import Figure

from icrl.config.compose import load_config
from icrl.config.root import Config
from icrl.contracts import Batch, ConfigError
from icrl.data.mixture import Mixture
from icrl.objectives.awr import AdvantageWeightedRegression
from icrl.plots import offline_plots
from icrl.plots.offline_plots import (
    NUM_BATCHES,
    NUM_PARTS,
    Weights,
    curves_figure,
    weights_figure,
    weights_of,
    write_comparison,
    write_value_curves,
    write_weight_plot,
)
from icrl.programs import extract_policy, train_ilql
from icrl.runs import checkpoint

STEPS = np.arange(4.0)


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """All figures that are saved."""
    saved: list[Figure] = []
    monkeypatch.setattr(offline_plots, "save_figure", lambda path, figure: saved.append(figure))
    return saved


def by_title(figure: Figure) -> dict[str, list[np.ndarray]]:
    """What the bold lines of each panel show."""
    return {
        axes.get_title(): [line.get_ydata() for line in axes.lines if line.get_alpha() is None] for axes in figure.axes
    }


# ---- how the critic learned


def curves(**values: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {f"train/{name}": (STEPS, value + STEPS / 10) for name, value in values.items()}


def test_curves_are_those_that_were_logged() -> None:
    logged = curves(td_error=1, q1=2, value=3, conservative=4, q=5, v=6, largest_q=7)
    logged["train/q_over_bound"] = (STEPS, logged["train/largest_q"][1] / 20)
    panels = by_title(curves_figure(logged, "run"))
    for title, starts in (
        ("mean absolute TD error", [1]),
        ("terms of the loss", [2, 3, 4]),
        ("mean of Q and V", [5, 6]),
    ):
        np.testing.assert_allclose(panels[title], [start + STEPS / 10 for start in starts])
    largest, bound = panels["largest |Q|"]
    np.testing.assert_allclose(largest, 7 + STEPS / 10)
    np.testing.assert_allclose(bound, [20, 20])


def test_without_a_bound_or_a_loss_of_v_there_is_no_line() -> None:
    figure = curves_figure(
        curves(td_error=1, q1=2, q=5, v=6, largest_q=7) | {"train/q_over_bound": (STEPS, 0 * STEPS)}, ""
    )
    panels = by_title(figure)
    assert len(panels["largest |Q|"]) == len(panels["terms of the loss"]) == 1
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["Q", "V"]


def test_a_critic_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="train_ilql"):
        write_value_curves(load_config(["experiment=tiny", f"root={tmp_path}"]))


def test_a_critic_whose_training_was_not_logged_is_refused(tmp_path: Path) -> None:
    config = load_config(["experiment=tiny", f"root={tmp_path}"])
    folder = config.folder("logs") / "ilql"
    checkpoint.save(folder, "last", 1, {}, critics.described(), 1)
    critics.finish(folder, 1)
    with pytest.raises(ConfigError, match=r"summaries\.num_summaries=0"):
        write_value_curves(config)


# ---- what is imitated


def by_hand(batch: Batch, advantages: list[float], normalize: str) -> list[tuple[float, float]]:
    """Weight of each step of a batch, and before the threshold of 2; inverse temperature 3."""
    free = [np.exp(3 * advantage) for advantage in advantages]
    if normalize == "softmax":
        free = [one / np.mean(free) for one in free]
    weights = [min(one, 2.0) for one in free]
    if normalize == "mean":
        weights = [one / np.mean(weights) for one in weights]
    return list(zip(weights, free, strict=True))


@pytest.mark.parametrize("normalize", ["none", "mean", "softmax"])
def test_weights_are_those_of_the_objective(normalize: str) -> None:
    awr = config_of(awr={"inverse_temperature": 3.0, "advantage_threshold": 2.0, "normalize": normalize}).awr
    critic, batches = critic_of().target, [batch_of(2, seed=seed) for seed in range(3)]
    found = weights_of(AdvantageWeightedRegression(awr, critic), batches)
    step = 0
    for batch in batches:
        with torch.no_grad():
            values = critic(shown(batch))
        places = [(b, t, int(batch.action[b, t])) for b in range(2) for t in range(CONFIG.model.context_len)]
        advantages = [float(min(values.q[:, b, t, a]) - values.value[b, t]) for b, t, a in places]
        for (b, t, a), advantage, (weight, free) in zip(
            places, advantages, by_hand(batch, advantages, normalize), strict=True
        ):
            row = [column[step] for column in found]
            optimal = a == int(batch.optimal_action[b, t])
            expected = [advantage, np.log(free), weight, t * NUM_PARTS // CONFIG.model.context_len, optimal]
            np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-6)
            step += 1
    assert step == len(found.weight)


def test_the_figure_shows_the_weights() -> None:
    generator = np.random.default_rng(0)
    advantage = generator.normal(size=4000)
    part = generator.integers(3, 6, 4000)  # the others are empty
    optimal = generator.random(4000) < 0.3
    weight = np.minimum(np.exp(advantage), 2)
    figure = weights_figure(Weights(advantage, advantage, weight, part, optimal), 2.0, "title")
    effective = sum(weight) ** 2 / sum(one * one for one in weight) / 4000
    clipped = np.mean([one > np.log(2) for one in advantage])
    assert figure.get_suptitle() == f"title; effective sample size {effective:.0%}, {clipped:.1%} clipped"
    left, middle, right = figure.axes
    assert middle.lines[0].get_xdata() == pytest.approx([np.log10(2)] * 2)
    centres = {}
    for name, patch in zip(("all", "weighted"), left.patches, strict=True):
        x, y = patch.get_xy().T
        edges, heights = np.unique(x), y[1::2][:50]
        assert np.sum(heights * np.diff(edges)) == pytest.approx(1)
        centres[name] = np.sum(heights * np.diff(edges) * (edges[1:] + edges[:-1]) / 2)
    assert centres["all"] == pytest.approx(advantage.mean(), abs=0.05)
    assert centres["weighted"] == pytest.approx(np.average(advantage, weights=weight), abs=0.05)
    for line, mask in zip(right.lines, (optimal, ~optimal), strict=True):
        means = [np.mean([w for w, p, m in zip(weight, part, mask, strict=True) if m and p == at]) for at in (3, 4, 5)]
        np.testing.assert_allclose(line.get_ydata(), means)
        np.testing.assert_allclose(line.get_xdata(), np.array([3.5, 4.5, 5.5]) / NUM_PARTS)


def test_equal_weights_have_a_picture_too() -> None:
    nothing = np.zeros(8)
    figure = weights_figure(Weights(nothing, nothing, nothing + 1, np.arange(8), nothing > 0), 20.0, "cloning")
    figure.draw_without_rendering()
    assert "100%, 0.0% clipped" in figure.get_suptitle()


@pytest.fixture
def extracted(root: Path) -> Callable[..., Config]:
    """A finished run with a critic and a policy from it; its configuration with other options."""
    config = load_config([*TINY, f"root={root}"])
    train_ilql.main(config)
    extract_policy.main(config)
    return lambda *options: load_config([*TINY, f"root={root}", *options])


def test_what_is_shown_is_what_the_policy_learned_from(
    extracted: Callable[..., Config], figures: list[Figure], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[Any, ...]] = []
    whole = Mixture.batch

    def spy(mixture: Mixture, *arguments: Any) -> Batch:
        drawn.append(arguments)
        return whole(mixture, *arguments)

    monkeypatch.setattr(Mixture, "batch", spy)
    config = extracted()
    assert write_weight_plot(config) == config.folder("logs") / "awr" / "weights.png"
    assert drawn == [(config.seed, update, 4) for update in range(NUM_BATCHES)]
    assert write_value_curves(config) == config.folder("logs") / "ilql" / "training.png"
    assert len(figures) == 2
    with pytest.raises(ConfigError, match="awr.inverse_temperature"):
        write_weight_plot(extracted("awr.inverse_temperature=1"))
    with pytest.raises(ConfigError, match="extract_policy"):
        write_weight_plot(extracted("awr.experiment_name=other"))
    for path in config.folder("logs").glob("ilql/*"):
        if path.is_file():
            path.unlink()
    train_ilql.main(extracted("trainer.num_iterations=4"))
    with pytest.raises(ConfigError, match="another critic"):
        write_weight_plot(config)


# ---- how policies compare


def write_results(folder: Path, height: float, searcher: float = 0.9) -> Path:
    def curve(value: float) -> dict[str, dict[str, list[float]]]:
        return {
            name: {"mean": [value + shift] * 3, "low": [value + shift - 0.1] * 3, "high": [value + shift + 0.1] * 3}
            for name, shift in (("success", 0.0), ("returns", 1.0), ("steps_to_goal", 2.0))
        }

    policies = {"model, held-out tasks": height, "model, training tasks": 0.7, "random": 0.1, "searcher": searcher}
    results.write_results(folder, curves={name: curve(value) for name, value in policies.items()})
    return folder


@pytest.mark.parametrize(("terminating", "label", "shift"), [(True, "steps to goal", 2.0), (False, "return", 1.0)])
def test_comparison(tmp_path: Path, figures: list[Figure], *, terminating: bool, label: str, shift: float) -> None:
    folders = {"one": write_results(tmp_path / "1", 0.3), "two": write_results(tmp_path / "2", 0.5)}
    config = load_config(["experiment=tiny", f"env.terminate_on_goal={terminating}"])
    write_comparison(config, folders, tmp_path / "both.png")
    (figure,) = figures
    left, right = figure.axes
    assert (left.get_ylabel(), right.get_ylabel()) == ("success", label)
    for axes, up in ((left, 0.0), (right, shift)):
        np.testing.assert_allclose(
            [line.get_ydata() for line in axes.lines], [[v + up] * 3 for v in (0.3, 0.5, 0.1, 0.9)]
        )
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "two", "random", "searcher"]


def test_what_is_not_shared_is_no_reference(tmp_path: Path, figures: list[Figure]) -> None:
    folders = {"one": write_results(tmp_path / "1", 0.3), "two": write_results(tmp_path / "2", 0.5, searcher=0.8)}
    write_comparison(load_config(["experiment=tiny"]), folders, tmp_path / "both.png")
    assert [text.get_text() for text in figures[0].legends[0].get_texts()] == ["one", "two", "random"]
