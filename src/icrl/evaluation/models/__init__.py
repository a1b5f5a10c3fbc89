"""Trained models that act: kinds of them, and those of a run."""
