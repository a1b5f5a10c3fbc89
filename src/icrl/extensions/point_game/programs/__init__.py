"""Programs of the extension `point_game`."""
