"""Extension: two checks of a model, after random actions of its own and on tasks of another kind: `check_model`."""
