"""Extension: source agents with a memory within the episode, `source.body=gru`. The preset `source=ppo_gru` builds on
that of `ppo`."""

NEEDS = ("vectors", "ppo")
