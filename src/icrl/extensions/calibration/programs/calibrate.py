"""Calibration of a trained model: is an action of probability p right with frequency p?

python -m src.calibrate [KEY=VALUE ...]      logs/<run>/<policy.model>/ -> logs/<name>/evaluation.../: calibration.*

Measured on windows of the development tasks, of the histories that the model learned from. `policy.model` and
`evaluation.checkpoint` choose the model, as for `src.evaluate`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from gymnasium.spaces import Discrete
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from icrl.app.root import Config
from icrl.config.options import refuse, replace
from icrl.evaluation.setup import open_setup
from icrl.evaluation.trained import changes_of, training_store
from icrl.extensions.calibration.reliability import calibration
from icrl.plots import style
from icrl.runs.device import prepare
from icrl.runs.files import only_writer, write_json
from icrl.training.program import UNWEIGHTED, windows_of

LARGE = "trainer.mini_batch_length, model.context_len"
NUM_WINDOWS = 256  # the same for every model


def main(config: Config) -> Path:
    """Measure, and write numbers and the reliability diagram; returns their folder."""
    with open_setup(config, prepare(config)) as setup:
        about, spec = setup.opened.described, setup.env.spec
        away = "env: calibration needs the histories of this world, but the model learned from another world"
        refuse(changes_of(config, about["config"]), away)
        tasks = about["tasks"]["development"]
        refuse(not tasks, "calibration needs development tasks: data.num_development_tasks=0 sets none aside")
        objective = config.objective if "objective" in setup.opened.compared else UNWEIGHTED
        needs = f"calibration needs Discrete actions, not {spec.action_space}"
        refuse(not isinstance(spec.action_space, Discrete), needs)
        store = training_store(config, about)
        every = replace(config, data=replace(config.data, min_final_success=0.0))  # also of agents that did not learn
        windows = windows_of(every, [store], tasks, objective, spec, torch.device("cpu"))
        target = "optimal_action" if objective.name == "dpt" else "action"
        batch, longest = windows.batch(config.seed, 0, NUM_WINDOWS), setup.model.config.context_len
        batch = batch._make(column[:, :longest] for column in batch)  # the context of a model that plans is shorter
        found = calibration(setup.model.eval(), spec, batch, target)
        figure = reliability_figure(found["bins"], f"Error {found['error']:.3f} of action probabilities")
        with only_writer(setup.folder):
            write_json(setup.folder / "calibration.json", found)
            style.save_picture(setup.folder / "calibration.png", style.figure_to_array(figure))
        means = f"confidence {found['confidence']:.3f}, right {found['accuracy']:.3f}"
        print(f"calibration error on windows of development tasks: {found['error']:.3f} ({means})")
        print(setup.folder / "calibration.png")
    return setup.folder


def reliability_figure(bins: Sequence[Mapping[str, float]], title: str) -> Figure:
    """Reliability diagram: how often the most probable action is right, by its probability, and how many steps have
    such a probability."""
    figure, (above, below) = style.new_panels(title, 2, 1, height_ratios=(3, 1), sharex=True)
    confidence, accuracy, share = ([one[key] for one in bins] for key in ("confidence", "accuracy", "share"))
    lines: style.Handles = {}
    (lines["calibrated"],) = above.plot([0, 1], [0, 1], **style.BASELINE)
    (lines["model"],) = above.plot(confidence, accuracy, "o-", color=style.PALETTE[0], linewidth=2.2, markersize=7)
    below.bar(confidence, share, width=0.03, color=style.PALETTE[0])
    above.set(xlim=(0, 1.02), ylim=(-0.02, 1.02))
    style.tidy(above, "", "right")
    style.tidy(below, "probability of the most probable action", "steps")
    below.yaxis.set_major_formatter(PercentFormatter(1.0))
    style.legend_below(figure, lines)
    return figure
