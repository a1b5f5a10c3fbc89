"""Extension: import of histories that other programs made: `src.import_histories`."""
