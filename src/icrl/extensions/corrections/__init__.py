"""Extension: after an error about options, all further ones, and a command without any."""
