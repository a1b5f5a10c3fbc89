"""Extension: observations that are vectors, images or several integers, and actions that are several or real numbers.
Networks of source agents over them, and encoders and action heads of the model."""
