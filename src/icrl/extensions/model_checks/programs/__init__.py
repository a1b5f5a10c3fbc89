"""Programs of the extension `model_checks`."""
