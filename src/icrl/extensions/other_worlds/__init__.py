"""Extension: evaluation of a model in a world that differs from that of its training, such as a larger room."""
