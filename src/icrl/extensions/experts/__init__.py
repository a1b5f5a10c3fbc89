"""Extension: sources that do not learn: `optimal`, `random` and noise distillation. They play the actions of an expert,
random ones, or a mixture of both. The expert is the planner, or the trained agents of another run (`teachers`).
The preset `source=expert` builds on that of `ppo`."""

NEEDS = ("ppo",)
