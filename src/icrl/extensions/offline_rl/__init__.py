"""Extension: offline RL in context: values of histories, and policies from them: `train_ilql`, `extract_policy`."""
