"""Options of a study: its question, its variants and its seeds; and of the leaderboard."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from icrl.app.root import Config
from icrl.config.options import OneOrMore, Options, PathName, Text, group, option
from icrl.extensions.scaling.options import AnyLaunch, LocalLaunch


class StudyConfig(Options):
    question: Text = option("none", "question of the comparison, and title of its plot")
    measure: Literal["success", "returns"] = option("success", "measure that variants are compared by")
    seeds: list[Annotated[int, Field(ge=0, le=10**9)]] = option([0, 1, 2], "seeds of every variant")
    splits: list[Annotated[int, Field(ge=0, le=10**9)]] = option(
        [], "values of tasks.seed: every variant is trained on each of these splits with every seed ([]: on one split)"
    )
    options: list[Text] = option(
        [], "options of all runs, KEY=VALUE each; those of the command line and of a variant come after these"
    )
    variants: Annotated[list[dict[str, Any] | Text], "a list of labels and mappings"] = option(
        [],
        "what is compared: each the label of a variant of the preset, or a `label`, what it changes (`set`, a list of "
        "KEY=VALUE) and, if needed, its place `x` (a number or a name) on the axis, `line`, the name of the line "
        "through such places, and `test`, the worlds it is evaluated in: for each a label and a list of KEY=VALUE ([]: "
        "there is nothing to compare); "
        "`published`, results to show beside ours: a `label`, a `value`, a `source` and a `measure`, total (reward "
        "of a life, the default), last (return of the last episode) or the number of an episode (its return)",
    )
    xlabel: Text = option("variant", "label of the axis of variants")

    former = {"scale": 1.0}


class StudiedConfig(Config):
    """Options of all programs, which the runs get too, and those of a study and its engine."""

    page: ClassVar[str] = "study"

    study: StudyConfig = group(StudyConfig, "a comparison of many runs", "study")
    launch: AnyLaunch = group(LocalLaunch, "engine that runs the jobs", "study")


class LeaderboardConfig(Config):
    """Options of all programs, and the results to add to the table."""

    add: Annotated[list[PathName], OneOrMore] = option(
        [],
        "folder with an evaluation to check and add, relative to the working directory; in a list of several, those "
        "that differ only in seed and split make one row ([]: print the table)",
        stages="leaderboard",
    )
