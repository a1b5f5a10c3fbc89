"""Programs of the extension `formats`."""
