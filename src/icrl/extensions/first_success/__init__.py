"""Extension: how soon the first success comes in evaluations, and what is kept of it."""
