"""Extension: exploration of a room without a goal, in evaluations: coverage, and the search off a plan."""

NEEDS = ("searchers",)
