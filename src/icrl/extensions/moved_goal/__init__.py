"""Extension: a goal that moves in the middle of a life, in evaluations and on the live map of the notebooks."""

NEEDS = ("maps",)
