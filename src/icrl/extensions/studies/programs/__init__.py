"""Programs of the extension `studies`."""
