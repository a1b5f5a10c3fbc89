"""The pictures of an evaluation: adaptation curves and a map of the room, as PNG and on TensorBoard."""

from typing import Any

import numpy as np

from src.evaluation.plots import (
    Curve,
    Panel,
    Reference,
    adaptation_figure,
    figure_to_array,
    goal_map_figure,
    save_figure,
)
from src.schema import Config
from src.training.summaries import Summaries

_REFERENCES = ("random", "searcher", "optimum")


def write_figures(config: Config, results: dict[str, Any], start: int | None) -> None:
    """Write `adaptation.png`, `goals.png` and TensorBoard curves over episodes into the evaluation's folder.

    `start` is the cell every episode starts on, None where starts vary."""
    folder = config.folder("logs") / "evaluation"
    for stale in folder.rglob("events.*"):
        stale.unlink()  # left by an evaluation that was interrupted
    second = ("steps to goal", "steps_to_goal") if config.env.terminate_on_goal else ("return", "returns")
    panels = [_panel(label, measure, results["curves"]) for label, measure in (("success", "success"), second)]
    adaptation = adaptation_figure(panels, title=f"In-context learning with frozen weights: {config.name}")
    final = results["final"]
    success = {
        task[0]: value
        for part in ("held_out", "train")
        for task, value in zip(results[f"{part}_tasks"], final[part]["success_per_task"], strict=True)
    }
    room = goal_map_figure(
        config.env.size,
        success,
        held_out=[task[0] for task in results["held_out_tasks"]],
        start=start,
        title="Success on each goal over the last episodes",
    )
    summaries = Summaries(folder)
    for name, figure in (("adaptation", adaptation), ("goals", room)):
        save_figure(folder / f"{name}.png", figure)
        summaries.image(name, figure_to_array(figure), 0)
    summaries.close()
    for policy, curves in results["curves"].items():  # a run each, so that one chart holds all policies
        board = Summaries(folder / policy.replace(", ", "-").replace(" ", "_"))
        for measure, curve in curves.items():
            for episode, value in enumerate(curve["mean"], start=1):
                board.scalars("adaptation", {measure: value}, episode)
        board.close()


def _panel(label: str, measure: str, curves: dict[str, Any]) -> Panel:
    lines = [
        Curve(name, np.array(curve[measure]["mean"]), np.array(curve[measure]["low"]), np.array(curve[measure]["high"]))
        for name, curve in curves.items()
        if name not in _REFERENCES
    ]
    return Panel(label, lines, [Reference(name, np.array(curves[name][measure]["mean"])) for name in _REFERENCES])
