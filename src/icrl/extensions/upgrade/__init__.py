"""Converter of the histories, checkpoints and results of older versions: `src.upgrade`."""
