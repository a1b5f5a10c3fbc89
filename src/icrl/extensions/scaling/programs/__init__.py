"""Programs of the extension `scaling`."""
