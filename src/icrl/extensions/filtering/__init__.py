"""Extension: algorithm distillation of the learning histories that improved most and most steadily,
`objective=filtered`."""
