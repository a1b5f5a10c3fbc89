"""Extension: evaluations during training in another process."""
