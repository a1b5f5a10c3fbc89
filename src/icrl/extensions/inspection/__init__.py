"""Extension: `summaries.details`, all that networks compute, and `summaries.profiled_iterations`, where time goes."""
