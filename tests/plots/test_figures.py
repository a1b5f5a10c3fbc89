"""Which measures an evaluation draws, beside what, and where it puts them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import curves_of as curves_on_disk

from icrl.config.compose import load_config
from icrl.envs import make_env
from icrl.evaluation.in_context import play_episodes
from icrl.evaluation.measures import exact_numbers
from icrl.evaluation.protocol import Setting, coverage_numbers, numbers_of
from icrl.evaluation.references import chance, exact_references
from icrl.plots import figures
from icrl.plots.figures import write_figures
from icrl.plots.style import Panel, adaptation_figure

WORLDS = {
    "dark_room": (["env.size=3"], ["success", "steps to goal"], "episode"),
    "dark_room_classic": (["env.size=3"], ["success", "return"], "episode"),
    "dark_key_to_door": (["env.size=3"], ["success", "return"], "episode"),
    "bandit": (["env.num_arms=3"], ["best arm", "regret so far"], "pull"),
    "bandit_gaussian": (["env.num_arms=3", "env.max_episode_steps=4"], ["best arm", "regret so far"], "episode"),
}


@pytest.mark.parametrize(("name", "transfer"), [*((name, False) for name in WORLDS), ("dark_room", True)])
def test_panels_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, transfer: bool) -> None:
    options, labels, xlabel = WORLDS[name]
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
        panels, texts = drawn.pop()
        assert texts["title"] == "Exploration without a goal: run"
        assert [curve.name for curve in panels[0].curves] == ["model, context kept"]
        assert [reference.name for reference in panels[0].references] == ["random", "searcher"]
        np.testing.assert_allclose(panels[0].curves[0].mean, shares.mean((0, 1)))
    assert [[curve.name for curve in panels[0].curves] for panels, _ in drawn] == curves
    measures = [{"best arm": "success", "success": "success"}.get(labels[0])]
    measures += [{"steps to goal": "steps_to_goal", "return": "returns", "regret so far": "regret"}[labels[1]]]
    for panels, texts in drawn:
        assert [panel.ylabel for panel in panels] == labels and texts["xlabel"] == xlabel and "run" in texts["title"]
        for panel, measure in zip(panels, measures, strict=True):
            assert [reference.name for reference in panel.references] == ["random", "searcher", "optimum"]
            for key in ("mean", "low", "high"):
                expected = results["curves"]["model, held-out tasks"][str(measure)][key]
                np.testing.assert_array_equal(getattr(panel.curves[-1], key), expected)
    pictures = {
        "adaptation.png",
        "goals.png",
        *([] if transfer else ["probes.png"]),
        *(["coverage.png"] if covered else []),
    }
    assert {path.name for path in tmp_path.glob("*.png")} == pictures
    folders = {"model-held-out_tasks", "searcher", "random", "optimum"}
    folders |= set() if transfer else {"model-training_tasks", "model-greedy", "model-rewards_blanked"}
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == folders
    shown = {"success", "returns", "steps_to_goal", "fraction_of_optimum", *(["regret"] if regrets else [])}
    assert set(curves_on_disk(tmp_path / "random")) == {f"adaptation/{measure}" for measure in shown}
