"""Extension: proximal policy optimisation as a source, `source=ppo`."""
