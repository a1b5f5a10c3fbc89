"""Programs of the extension `exported`."""
