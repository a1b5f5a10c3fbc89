"""Stage one: trains source agents, and records, checks and evaluates their lives. Start with `record`."""
