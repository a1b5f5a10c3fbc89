"""Kinds of schedules; each function takes the keys of a kind and has the equation."""

import math
from bisect import bisect_right
from typing import Annotated, Literal

from pydantic import Field, validate_call

from icrl.config.schedules import KINDS, Curve, Number, Points, Positive, between


def step(*, points: Annotated[Points, Field(min_length=1)]) -> Curve:
    """Value of the first point with p < time, so at p = time the next one; constant after the last."""
    times, values = zip(*points, strict=True)
    if times[0] <= 0:
        raise ValueError(f"points[0][0]={times[0]:g}: must be > 0")
    return lambda p: values[min(bisect_right(times, p), len(values) - 1)]


def exponential(
    *, initial: Number, rate: Annotated[Positive, Field(le=1)], time: Positive, final: Number = 0.0
) -> Curve:
    """initial * r + final * (1 - r) with r = rate^(p / time): each `time` the distance to `final` shrinks by `rate`. A
    growing curve has a `final` above its `initial`, and so a limit."""
    return lambda p: between(final, initial, rate ** (p / time))


def inverse(*, initial: Positive, rate: Positive) -> Curve:
    """rate / (p + rate / initial), written so that it is exact at 0."""
    return lambda p: initial / (1 + p * initial / rate)


def cyclical(*, base: Number, bound: Number, half_cycle: Positive, shape: Literal["step", "linear"]) -> Curve:
    """step: `base` for half a cycle, `bound` for the next; linear: up from `base` to `bound`, and back down."""

    def curve(p: float) -> float:
        if shape == "step":  # rounded, because 0.3 / 0.1 is below 3
            return between(base, bound, math.floor(round(p / half_cycle, 9)) % 2)
        return between(base, bound, 1 - abs(1 - p % (2 * half_cycle) / half_cycle))

    return curve


KINDS |= {one.__name__: validate_call(one) for one in (step, exponential, inverse, cyclical)}
