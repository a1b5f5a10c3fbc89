"""Extension: differences of a model from other policies in an evaluation, task by task."""
