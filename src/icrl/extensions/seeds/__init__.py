"""Extension: stage two for several seeds in one batched program, `src.train_seeds`."""
