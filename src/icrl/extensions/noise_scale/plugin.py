"""Registration of the estimator, and of what it needs of other options."""

from collections.abc import Iterator

from icrl.app.root import Config, rule
from icrl.extensions.noise_scale.estimator import make_noise_scale
from icrl.training.fit import NOISE_SCALES

NOISE_SCALES.append(make_noise_scale)


@rule
def conflicts(config: Config) -> Iterator[str]:
    """The scale is shown with points of curves, from parts of a batch."""
    curves = config.summaries
    if curves.gradient_noise_scale == "none":
        return
    if not (curves.num_summaries or curves.summary_interval):
        shows = "shows nothing with $summaries.num_summaries and $summaries.summary_interval"
        yield f"$summaries.gradient_noise_scale {shows}"
    if config.trainer.mini_batch_size < 2:
        yield "$summaries.gradient_noise_scale needs parts of $trainer.mini_batch_size: give trainer.mini_batch_size=2"
