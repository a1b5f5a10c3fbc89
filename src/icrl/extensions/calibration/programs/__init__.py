"""Programs of the extension `calibration`."""
