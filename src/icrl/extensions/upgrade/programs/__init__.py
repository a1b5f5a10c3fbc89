"""Programs of the extension `upgrade`."""
