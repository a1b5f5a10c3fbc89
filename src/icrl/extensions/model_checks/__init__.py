"""Extension: two checks of any model, its own noise in the context and tasks of another kind: `check_model`."""
