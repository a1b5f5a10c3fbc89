"""Programs of the extension `demo`."""
