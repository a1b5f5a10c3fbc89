"""Extension: regions of a room that `tasks.split` holds out."""
