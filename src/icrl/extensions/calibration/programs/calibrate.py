"""Calibration of a trained model: does an action of probability p come true with frequency p?

python -m src.calibrate [KEY=VALUE ...]      logs/<run>/gpt/ -> logs/<name>/evaluation/: calibration.json, .png

Measured on windows of the development tasks, of the histories that the model learned from. `policy.model` and
`evaluation.checkpoint` choose the model, as for `src.evaluate`.
"""

from pathlib import Path

from icrl.app.root import Config
from icrl.config.options import refuse
from icrl.evaluation.setup import open_setup
from icrl.evaluation.trained import changes_of, training_store
from icrl.extensions.calibration.pictures import reliability_figure
from icrl.extensions.calibration.reliability import calibration, development_windows, target_of
from icrl.plots import style
from icrl.runs.device import prepare
from icrl.runs.files import only_writer, write_json
from icrl.training.program import unweighted

LARGE = "trainer.mini_batch_length, model.context_len"


def main(config: Config) -> Path:
    """Measure, and write numbers and the reliability diagram; returns their folder."""
    with open_setup(config, prepare(config)) as setup:
        about, spec = setup.opened.described, setup.env.spec
        away = "env: calibration needs the histories of this world, and the model learned from another one's"
        refuse(changes_of(config, about["config"]), away)
        tasks = about["tasks"]["development"]
        refuse(not tasks, "calibration needs development tasks: data.num_development_tasks=0 sets none aside")
        objective = config.objective if "objective" in setup.opened.compared else unweighted(config.objective)
        windows = development_windows(config, [training_store(config, about)], tasks, objective, spec)
        found = calibration(setup.model.eval(), spec, windows, target_of(objective))
        figure = reliability_figure(found["bins"], f"Error {found['error']:.3f} of action probabilities")
        with only_writer(setup.folder):
            write_json(setup.folder / "calibration.json", found)
            style.save_picture(setup.folder / "calibration.png", style.figure_to_array(figure))
        means = f"confidence {found['confidence']:.3f}, right {found['accuracy']:.3f}"
        print(f"calibration error on windows of development tasks: {found['error']:.3f} ({means})")
        print(setup.folder / "calibration.png")
    return setup.folder
