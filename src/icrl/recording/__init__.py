"""Stage one: source agents are trained, and their lives recorded, checked, evaluated and examined. `record` does it."""
