"""Pictures of an evaluation: their measures, curves and references, and the files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import curves_of as curves_on_disk

from icrl.config.compose import load_config
from icrl.envs import make_env
from icrl.evaluation.in_context import play_episodes
from icrl.evaluation.protocol import Setting, coverage_numbers, exact_numbers, numbers_of
from icrl.evaluation.references import chance, exact_references
from icrl.plots import figures
from icrl.plots.figures import Panel, adaptation_figure, write_figures

WORLDS = {  # options, labels and measures of the panels, label of the x axis
    "dark_room": (["env.size=3"], {"success": "success", "steps to goal": "steps_to_goal"}, "episode"),
    "dark_room_classic": (["env.size=3"], {"success": "success", "return": "returns"}, "episode"),
    "dark_key_to_door": (["env.size=3"], {"success": "success", "return": "returns"}, "episode"),
    "bandit": (["env.num_arms=3"], {"best arm": "success", "regret so far": "regret"}, "pull"),
    "bandit_gaussian": (
        ["env.num_arms=3", "env.max_episode_steps=4"],
        {"best arm": "success", "regret so far": "regret"},
        "episode",
    ),
}


@pytest.mark.parametrize(("name", "transfer"), [*((name, False) for name in WORLDS), ("dark_room", True)])
def test_panels_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, transfer: bool) -> None:
    options, measures, xlabel = WORLDS[name]
    config = load_config([f"env={name}", *options, "evaluation.num_bootstrap=100"])
    env = make_env(config.env)
    tasks = env.all_tasks()[:3]
    found, _ = play_episodes(chance(env, config), env, tasks, 2, 4, seed=0)
    exact = exact_numbers(exact_references(env, tasks))
    regrets = env.spec.success == "best_action"
    probes = ["temperature 0", "blank"]
    played = dict.fromkeys(["held_out", "searcher", *([] if transfer else ["train", *probes])], found)
    setting = Setting({"held_out": exact, "train": exact}, "1", regrets)
    results: dict[str, Any] = {
        "train_tasks": env.all_tasks()[3:6].tolist(),
        "held_out_tasks": tasks.tolist(),
        **numbers_of({0: played}, setting, config.evaluation, 0),
    }
    if covered := name == "dark_room" and not transfer:
        shares = np.linspace(0, 1, 2 * 6).reshape(1, 2, 6)
        by_policy = dict.fromkeys(("model, context kept", "searcher", "random"), shares)
        results |= coverage_numbers([by_policy], config.evaluation, 0)
    drawn: list[tuple[list[Panel], dict[str, str]]] = []

    def draw(panels: list[Panel], **texts: str) -> Any:
        drawn.append((panels, texts))
        return adaptation_figure(panels, **texts)

    monkeypatch.setattr(figures, "adaptation_figure", draw)
    write_figures(tmp_path, "run", env, results, ["searcher"])
    curves = [["model, held-out tasks"]]
    if not transfer:
        curves = [[*curves[0], "model, training tasks"], [*curves[0], "model, greedy", "model, rewards blanked"]]
    if covered:
        (panel,), texts = drawn.pop()
        assert texts["title"] == "Exploration without a goal: run"
        assert [*panel.curves] == ["model, context kept"] and [*panel.references] == ["random", "searcher"]
        np.testing.assert_allclose(panel.curves["model, context kept"]["mean"], shares.mean((0, 1)))
    assert [[*panels[0].curves] for panels, _ in drawn] == curves
    for panels, texts in drawn:
        assert [panel.ylabel for panel in panels] == [*measures]
        assert texts.get("xlabel") == xlabel and "run" in texts["title"]
        for panel, measure in zip(panels, measures.values(), strict=True):
            assert [*panel.references] == ["random", "searcher", "optimum"]
            assert panel.curves["model, held-out tasks"] == results["curves"]["model, held-out tasks"][measure]
    pictures = {"adaptation", "goals", *([] if transfer else ["probes"]), *(["coverage"] if covered else [])}
    assert {path.stem for path in tmp_path.glob("*.png")} == pictures
    folders = {"model-held-out_tasks", "searcher", "random", "optimum"}
    folders |= set() if transfer else {"model-training_tasks", "model-greedy", "model-rewards_blanked"}
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == folders
    shown = {"success", "returns", "steps_to_goal", "fraction_of_optimum", *(["regret"] if regrets else [])}
    assert set(curves_on_disk(tmp_path / "random")) == {f"adaptation/{measure}" for measure in shown}


def test_lines_bands_and_legend() -> None:
    mean = np.linspace(0.1, 0.9, 12)
    held_out = {"mean": mean, "low": mean - 0.05, "high": mean + 0.05}
    training = dict.fromkeys(("mean", "low", "high"), mean**2)
    references = {"random": np.full(12, 0.12), "searcher": np.linspace(0.2, 1.0, 12)}
    success: Any = Panel("success", {"held out": held_out, "training": training}, references)
    steps: Any = Panel("steps to goal", {"held out": training}, {})
    figure = adaptation_figure([success, steps], title="DarkRoom")
    left, right = figure.axes
    first, second, *others = left.lines
    np.testing.assert_array_equal(first.get_xydata(), np.column_stack([np.arange(1, 13), mean]))
    for line, values in zip(others, references.values(), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), values)
        assert line.is_dashed() and not first.is_dashed()
    assert second.get_color() != first.get_color() == right.lines[0].get_color()
    band = left.collections[0].get_datalim(left.transData)
    np.testing.assert_allclose((band.y0, band.y1), (mean[0] - 0.05, mean[-1] + 0.05))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["held out", "training", *references]
    assert (left.get_ylabel(), right.get_ylabel()) == ("success", "steps to goal")


def test_seven_curves_and_eight_references_all_look_different() -> None:
    curve = {"mean": [0.5], "low": [0.5], "high": [0.5]}
    references = {f"reference {index}": [0.1 * index] for index in range(8)}
    panel = Panel("success", dict.fromkeys("abcdefg", curve), references)
    lines = adaptation_figure([panel], title="title").axes[0].lines
    looks = {(line.get_color(), str(vars(line)["_unscaled_dash_pattern"])) for line in lines}
    assert len(looks) == len(lines) == 15 and all(line.is_dashed() for line in lines[7:])
