"""The world of this extension, networks that read it, and the rules of what fits it."""

from collections.abc import Iterator
from operator import attrgetter

from icrl.app.root import Config, rule
from icrl.extensions.point_game.opponents import PointGameConfig
from icrl.extensions.point_game.points import PointEmbedding, PointHeads
from icrl.extensions.point_game.world import PointFamily

__all__ = ["PointEmbedding", "PointFamily", "PointHeads"]

_READS_POINTS = ("a2c", "a3c", "ppo", "random")  # sources that read observations of many numbers


@rule
def _in_point_game(config: Config) -> Iterator[str]:
    if not isinstance(config.env, PointGameConfig):
        return
    if config.source.name not in _READS_POINTS:
        yield f"$source.name must be {', '.join(_READS_POINTS)} with $env.name: the others read no point sets"
    for key, needed, reason in (
        ("source.videos_per_task", 0, "there is no room to film"),
        ("evaluation.videos", False, "there is no room to film"),
        ("model.induction", 0, "no position is seen twice"),
        ("objective.name", "ad", "nobody knows what is optimal"),
    ):
        if attrgetter(key)(config) != needed:
            allowed = str(needed).lower()
            yield f"${key} does not fit $env.name: must be {allowed}, {reason}; give {key}={allowed}"
