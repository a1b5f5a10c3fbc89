"""Extension: plots of finished training runs, from their histories and event files, for notebooks."""
