"""Evaluation in context: the protocol, references, ablations and statistics."""
