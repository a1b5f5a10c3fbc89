"""Extension: evaluations of source agents while they train (`source.evaluate`)."""
