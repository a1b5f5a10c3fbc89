"""Extension: the gradient noise scale, up to which larger batches help about proportionally."""
