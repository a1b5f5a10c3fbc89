"""Pictures of an evaluation: measures, curves and references, the success on each task, and the files."""

from pathlib import Path

import numpy as np
import pytest
from harness import curves_of as curves_on_disk
from task_maps import figure_of, world

from icrl import extensions
from icrl.app.compose import load_config
from icrl.envs import make_env
from icrl.envs.policies import Chance
from icrl.evaluation import protocol
from icrl.evaluation.in_context import play_episodes
from icrl.evaluation.protocol import Setting, summarise
from icrl.evaluation.references import exact_references
from icrl.plots import figures
from icrl.plots.figures import Panel, adaptation_figure, write_figures

ARMS = ["env.num_arms=3", "env.max_episode_steps=4"]
WORLDS = {  # options, labels and measures of the panels, label of the x axis
    "dark_room": (["env.size=3"], {"success": "success", "steps to goal": "steps_to_goal"}, "episode"),
    "dark_room_classic": (["env.size=3"], {"success": "success", "return": "returns"}, "episode"),
}
if "worlds" in extensions.NAMES:
    WORLDS |= {
        "bandit": (["env.num_arms=3"], {"best arm": "success", "regret so far": "regret"}, "pull"),
        "bandit_gaussian": (ARMS, {"best arm": "success", "regret so far": "regret"}, "episode"),
    }


@pytest.mark.parametrize(("name", "transfer"), [*((name, False) for name in WORLDS), ("dark_room", True)])
def test_panels_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, transfer: bool) -> None:
    options, measures, xlabel = WORLDS[name]
    for module in (figures, protocol):
        monkeypatch.setattr(module, "diagnostics", list)
    config = load_config([f"env={name}", *options, "evaluation.num_bootstrap=100"])
    env = make_env(config.env)
    tasks = env.all_tasks()[:3]
    found, _ = play_episodes(Chance(env.spec), env, tasks, 2, 4, seed=0)
    exact = exact_references(env, tasks)
    regrets = env.spec.success == "best_action"
    probes = ["temperature 0", "blank"]
    played = dict.fromkeys(["held_out", "searcher", *([] if transfer else ["train", *probes])], found)
    setting = Setting({"held_out": exact, "train": exact}, "1", regrets)
    results = {"train_tasks": env.all_tasks()[3:6].tolist(), "held_out_tasks": tasks.tolist()}
    results |= summarise({0: played}, setting, config.evaluation, 0)
    drawn = []
    draw = lambda panels, **texts: drawn.append((panels, texts)) or adaptation_figure(panels, **texts)  # noqa: E731
    monkeypatch.setattr(figures, "adaptation_figure", draw)
    write_figures(tmp_path, env, results, ["searcher"], config.summaries)
    curves = [["model, held-out tasks"]]
    if not transfer:
        curves = [[*curves[0], "model, training tasks"], [*curves[0], "model, greedy", "model, rewards blanked"]]
    assert [[*panels[0].curves] for panels, _ in drawn] == curves
    for panels, texts in drawn:
        assert [panel.ylabel for panel in panels] == [*measures]
        assert texts.get("xlabel") == xlabel
        for panel, measure in zip(panels, measures.values(), strict=True):
            assert [*panel.references] == ["random", "searcher", "optimum"]
            assert panel.curves["model, held-out tasks"] == results["curves"]["model, held-out tasks"][measure]
    pictures = {"adaptation", "goals", *([] if transfer else ["probes"])}
    assert {path.stem for path in tmp_path.glob("*.png")} == pictures
    folders = {"model-held-out_tasks", "random", "optimum", *([] if transfer else ["model-training_tasks"])}
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == folders
    shown = {"success", "returns", "steps_to_goal", "fraction_of_optimum", *(["regret"] if regrets else [])}
    assert set(curves_on_disk(tmp_path / "random")) == {f"adaptation/{measure}" for measure in shown}
    others = {"searcher", *([] if transfer else ["model-greedy", "model-rewards_blanked"])}
    found = {tag for tag in curves_on_disk(tmp_path) if tag.startswith("adaptation")}
    assert {f"adaptation_{measure}/{policy}" for measure in shown for policy in others} == found


def test_lines_bands_and_legend() -> None:
    mean = np.linspace(0.1, 0.9, 12)
    held_out = {"mean": mean, "low": mean - 0.05, "high": mean + 0.05}
    training = dict.fromkeys(("mean", "low", "high"), mean**2)
    references = {"random": np.full(12, 0.12), "searcher": np.linspace(0.2, 1.0, 12)}
    success = Panel("success", {"held out": held_out, "training": training}, references)
    steps = Panel("steps to goal", {"held out": training}, {})
    figure = adaptation_figure([success, steps], title="DarkRoom")
    left, right = figure.axes
    first, second, *others = left.lines
    np.testing.assert_array_equal(first.get_xydata(), np.column_stack([np.arange(1, 13), mean]))
    for line, values in zip(others, references.values(), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), values)
        assert line.is_dashed() and not first.is_dashed()
    assert others[0].get_zorder() >= first.get_zorder() > second.get_zorder()  # where they coincide, the first is seen
    assert second.get_color() != first.get_color() == right.lines[0].get_color()
    band = left.collections[0].get_datalim(left.transData)
    np.testing.assert_allclose((band.y0, band.y1), (mean[0] - 0.05, mean[-1] + 0.05))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["held out", "training", *references]
    assert (left.get_ylabel(), right.get_ylabel()) == ("success", "steps to goal")


def test_nine_curves_or_seven_and_eight_references_all_look_different() -> None:
    """Curves beyond the last colour are dashed, as references are."""
    curve = {"mean": [0.5], "low": [0.5], "high": [0.5]}
    for curves, references in (("abcdefghi", ""), ("abcdefg", "hijklmno")):
        panel = Panel("success", dict.fromkeys(curves, curve), {name: [0.5] for name in references})
        lines = adaptation_figure([panel], title="title").axes[0].lines
        looks = {(line.get_color(), str(vars(line)["_unscaled_dash_pattern"])) for line in lines}
        assert len(looks) == len(lines) == len(curves + references)
        assert [line.is_dashed() for line in lines] == [False] * 7 + [True] * (len(lines) - 7)


def test_tasks_without_a_cell_are_sorted_by_success(monkeypatch: pytest.MonkeyPatch) -> None:
    env = world("env.size=3")
    monkeypatch.setattr(env, "goal_cell", lambda tasks: None)
    tasks = env.all_tasks()
    train = tasks[:4], [0.5, 1.0, 0.0, 0.75]
    figure = figure_of(env, train, (tasks[4:6], [0.25, 0.5]), (tasks[6:7], [0.1]))
    held_out, development, training = figure.axes[0].lines
    np.testing.assert_array_equal(training.get_xydata(), [[0.125, 1.0], [0.375, 0.75], [0.625, 0.5], [0.875, 0.0]])
    np.testing.assert_array_equal(held_out.get_xydata(), [[0.25, 0.5], [0.75, 0.25]])
    assert development.get_xdata().tolist() == [0.5]
    assert held_out.get_zorder() > development.get_zorder() > training.get_zorder()
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["held-out tasks (2)", "development tasks (1)", "training tasks (4)"]
    assert len(figure_of(env, train, (tasks[4:6], [])).axes[0].lines) == 1
