"""Extension: the gradient noise scale, the largest batch size that helps much."""
