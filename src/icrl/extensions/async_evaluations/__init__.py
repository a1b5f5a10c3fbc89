"""Extension: evaluations during training, in a separate process."""

NEEDS = ("parallel",)
