"""Extension: the two-player polyhedra game, `env=point_game` and `src.train_players`.

Lowest first: `rules`, `fixed_players`, `rollout` (many games side by side, and matches); above them the pipeline's
world (`opponents`, `world`), players with a network (`players/`), Gymnasium environments. The
players learn from the replay of `value_sources`, the Gymnasium environments take seeds and masks as `as_gymnasium`
does, source agents have the heads of `vectors`, videos of games are written as those of `films`, and the example of
the reference has rates of a kind of `schedules`.
"""

from icrl.extensions.as_gymnasium import register

NEEDS = ("value_sources", "as_gymnasium", "vectors", "films", "schedules")
_MAKES = "icrl.extensions.point_game.gymnasium"
_POINTS = {"dimension": 3, "max_num_points": 20, "max_value": 20, "reposition": False, "scale_observation": True}

register(
    {
        "PointGameHost": (_MAKES, 100, {"role": "host", "opponent": "random", **_POINTS}),
        "PointGameAgent": (_MAKES, 100, {"role": "agent", "opponent": "zeillinger", **_POINTS}),
    }
)
