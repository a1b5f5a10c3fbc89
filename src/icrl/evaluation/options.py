"""Options of stage three."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, PlainValidator, model_validator

from icrl.config.options import NO_EFFECT, Options, option, refuse

_LEAST_TEMPERATURE = 0.001  # a colder one overflows, and is greedy


def _check_which(value: Any) -> str | int:
    if value not in ("best", "last") and (type(value) is not int or value < 0):
        raise ValueError
    return value


Which = Annotated[str | int, PlainValidator(_check_which), "best, last, or the number of an update"]


class EvaluationConfig(Options):
    checkpoint: Which = option(
        "last", "checkpoint to roll out: the best in evaluations, the last, or that of an update, such as a snapshot"
    )
    tasks: Literal["test", "development"] = option(
        "test", "test: held-out tasks, and development tasks beside them; development: these alone, to choose a recipe"
    )
    num_episodes: int = option(40, "episodes per stream", ge=2, le=10**6)
    num_streams: int = option(20, "streams per held-out task, or development task in its place", ge=1, le=10**5)
    num_train_tasks: int = option(0, "training tasks of the model that are also played, for comparison (0: all)", ge=0)
    sample_probability: float = option(1.0, "probability of drawing at policy.temperature, else greedy", ge=0, le=1)
    temperatures: list[Annotated[float, Field(ge=0)]] = option([0.0, 0.5], "other temperatures to compare (0: greedy)")
    ablations: bool = option(
        True, "also play with a context that is blanked, shuffled, wiped or taken from another task"
    )
    moved_goal: bool = option(
        True,
        "in DarkRoom also move the goal after half of the episodes, with the context kept, to that of the next task",
    )
    num_probe_streams: int = option(
        4,
        "streams per held-out task for each ablation or temperature and where the goal moves, and per training task or "
        "further development task",
        ge=1,
        le=10**5,
    )
    num_bootstrap: int = option(2000, "bootstrap resamples of the intervals", ge=100, le=10**5)
    videos: bool = option(True, "write the videos of the model beside the source agent", may_change=True)

    former = {"calibration": NO_EFFECT, "num_train_streams": NO_EFFECT, "reward_ablations": False, "confidence": 0.95}

    @model_validator(mode="after")
    def _check(self) -> Self:
        given, must = self.temperatures, f"evaluation.temperatures={self.temperatures}: must"
        low = any(0 < temperature < _LEAST_TEMPERATURE for temperature in given)
        refuse(low, f"{must} be 0 or at least {_LEAST_TEMPERATURE}")
        refuse(len(set(given)) < len(given), f"{must} have no number twice")
        return self
