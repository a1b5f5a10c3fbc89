"""Stage one: source agents are trained, and their lives recorded, checked and evaluated. Start with `record`."""
