"""Extension: lists all errors in the options at once, and prints a command without any."""
