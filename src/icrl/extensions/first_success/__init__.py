"""Extension: how soon the first success comes in evaluations, and whether the goal is found again after it."""
