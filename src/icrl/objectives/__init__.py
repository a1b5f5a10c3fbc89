"""Training objectives of stage two: (model, batch) -> terms of the loss, metrics."""
