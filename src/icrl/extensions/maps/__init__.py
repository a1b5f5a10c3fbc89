"""Extension: pictures of maps, one frame per step, for the extensions that show worlds."""
