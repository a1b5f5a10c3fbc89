"""Extension: calibration of a model's action probabilities: `calibrate`, and `evals.uncertainty` during training."""
