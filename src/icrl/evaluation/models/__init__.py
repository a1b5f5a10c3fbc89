"""Trained models that act: kinds of them, those of a run, and exported ones."""
