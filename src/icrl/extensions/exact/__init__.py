"""Extension: exact results of random play and of the optimum in finite worlds, beside a model and in its measures."""
