"""Extension: a goal that moves in mid-stream, in evaluations and on the live map of the notebooks."""
