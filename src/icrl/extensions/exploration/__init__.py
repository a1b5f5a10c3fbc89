"""Extension: exploration of a room without a goal, in evaluations: coverage, also after a random first episode."""

NEEDS = ("searchers", "probes")
