"""Programs of the extension `seeds`."""
