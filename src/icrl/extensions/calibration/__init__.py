"""Extension: calibration of a model's action probabilities, the program `calibrate`."""
