"""Extension: maps of success on the tasks of a room, and pictures of maps for the extensions that show worlds."""
