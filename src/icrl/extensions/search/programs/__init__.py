"""Programs of the extension `search`."""
