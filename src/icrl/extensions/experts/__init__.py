"""Extension: sources that learn nothing, whose actions are those of an expert or random: noise distillation, `optimal`
and `random`. The expert is the planner, or the trained agents of another run (`teachers`)."""
