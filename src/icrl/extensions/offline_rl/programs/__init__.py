"""Programs of the extension `offline_rl`."""
